package command_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/cli/internal/forward/forwardtest"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/remote"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// gateway makes a Ready pod of a gateway, as the chart labels it.
func (w *world) gateway(t *testing.T) string {
	t.Helper()
	pods := w.cluster.Client().CoreV1().Pods("nvsentinel")
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "gateway-", Labels: map[string]string{"app.kubernetes.io/name": "platform-connectors-gateway"}},
		Spec:       corev1.PodSpec{NodeName: w.node.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pods.Delete(context.WithoutCancel(t.Context()), pod.Name, *metav1.NewDeleteOptions(0))
	})
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return pod.Name
}

// kubeletProxy stands before the API server for the kubelets that are not here: a port that is
// forwarded into any pod leads to the world's store.
type kubeletProxy struct {
	next http.Handler
	// store is where it is read.
	store string

	mu      sync.Mutex
	tunnels []httpstream.Connection
}

// ServeHTTP implements http.Handler.
func (k *kubeletProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/portforward") {
		k.next.ServeHTTP(w, r)
		return
	}
	conn, err := forwardtest.Upgrade(w, r, true, func(string) (net.Conn, error) { return net.Dial("tcp", k.store) })
	if err != nil {
		return // the caller reports the error
	}
	k.mu.Lock()
	k.tunnels = append(k.tunnels, conn)
	k.mu.Unlock()
	<-conn.CloseChan()
}

// cut ends all tunnels, and returns how many there have been.
func (k *kubeletProxy) cut() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.tunnels {
		_ = c.Close()
	}
	return len(k.tunnels)
}

// startKubeletProxy serves one until the test ends, and gives the viewer's kubeconfig for it.
func (w *world) startKubeletProxy(t *testing.T) (*kubeletProxy, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reader := storetest.Reader(t, w.dsn)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- remote.Serve(ctx, l, reader, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	rc := w.cluster.RESTConfig()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(rc)) // who calls brings a token
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(rc.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &kubeletProxy{store: l.Addr().String(), next: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}}
	server := httptest.NewTLSServer(f) // without TLS no token is sent
	t.Cleanup(func() {
		f.cut()
		server.CloseClientConnections()
		server.Close()
	})
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return f, edited(t, w.viewer, map[string]string{"server": server.URL, "certificate-authority-data": base64.StdEncoding.EncodeToString(authority)})
}

// TestNothingButAKubeconfig: why, status, and who follows read the store through a
// gateway, and go on through another one when the pod has gone.
func TestNothingButAKubeconfig(t *testing.T) {
	w := newWorld(t)
	f, kubeconfig := w.startKubeletProxy(t)
	first := w.gateway(t)
	run(t, command.Program{}, "status", "--kubeconfig", kubeconfig).expect(t, command.ExitComplete, "fault-quarantine   1", "")
	run(t, command.Program{}, "why", w.node.Name, "--kubeconfig", kubeconfig).expect(t, command.ExitComplete, `by rule "fatal"`, "")
	story := follow(t, command.Program{}, "why", w.node.Name, "-f", "--kubeconfig", kubeconfig)
	story.waitForOutput("remediating")
	w.gateway(t)
	if err := w.cluster.Client().CoreV1().Pods("nvsentinel").Delete(t.Context(), first, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	before := f.cut()
	storetest.MustAppend(t, w.records, storetest.Record(w.node.Name, func(r *record.Record) {
		r.Event.ProcessingStrategy, r.Event.Message = record.PersistOnly, "after the first gateway"
	}))
	story.waitForOutput("after the first gateway")
	story.ctrlC()
	if now := f.cut(); now <= before {
		t.Errorf("%d tunnels, %d before the first gateway went", now, before)
	}
}

// TestStoreAccessThroughGateway: the rights that the page lists are enough to find the
// gateway in the namespace and to reach the kubelet, which is absent here. The other
// sources are still shown.
func TestStoreAccessThroughGateway(t *testing.T) {
	w := newWorld(t)
	status := func(kubeconfig string, message ...string) {
		t.Helper()
		a := run(t, command.Program{}, "status", "--kubeconfig", kubeconfig)
		for _, want := range message {
			a.expect(t, command.ExitPartial, want, "")
		}
		a.expect(t, command.ExitPartial, w.node.Name+"  remediating", "")
	}
	status(w.viewer, "! store not read: ", "namespace nvsentinel has none")
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nodes-without-pods}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods-without-ports}
rules: [{apiGroups: [""], resources: [nodes, pods], verbs: [get, list]}]
`)
	blind, short := w.account(t, "nodes-without-pods", "nodes-without-pods"), w.account(t, "pods-without-ports", "pods-without-ports")
	w.gateway(t)
	status(blind, "permission to list pods in namespace nvsentinel")
	status(short, "gateway gateway-", "permission to create pods/portforward in namespace nvsentinel")
	a := run(t, command.Program{}, "status", "--kubeconfig", w.viewer)
	a.expect(t, command.ExitPartial, "! store not read: ", "")
	if !strings.Contains(a.out, "gateway gateway-") || strings.Contains(a.out, "requires permission") {
		t.Errorf("with the rights of the page it does not come to the kubelet:\n%s", a.out)
	}
	run(t, command.Program{}, "canary", w.node.Name, "--kubeconfig", w.viewer).expect(t, command.ExitFailed, "", "a canary requires the store and the API server: ")
	run(t, command.Program{}, "clear", w.node.Name, w.fault.ID, "--kubeconfig", w.viewer).expect(t, command.ExitFailed, "", "clearing requires the store and the API server: ")
	if id := w.requestedCanary(t); id != "" {
		t.Errorf("canary %s was asked for without a way to see it come", id)
	}
}
