package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodetypes "k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/pythonenv"
	"github.com/nvidia/nvsentinel/internal/freeport"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// moto is EC2 as moto serves it, a service that nobody here wrote, behind a proxy that
// counts the reboots that were taken, throttles, loses answers, shows a failed check,
// and refuses what EC2 refuses and moto does: the reboot of what does not run.
type moto struct {
	direct *ec2.Client // past the proxy
	proxy  *httptest.Server

	mu             sync.Mutex
	reboots        map[string]int
	rebooted       map[string]func(boot int) // by instance
	throttle, lose int                       // requests, and answers to signals
	impaired       bool
	work           sync.WaitGroup
}

func serveMoto(t *testing.T) *moto {
	t.Helper()
	bin := pythonenv.Programs(t, "moto.sh")
	port, err := freeport.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	pythonenv.Serve(t, address+"/moto-api/", exec.Command(filepath.Join(bin, "moto_server"), "-H", "127.0.0.1", "-p", fmt.Sprint(port)))
	m := &moto{
		direct:  ec2.New(ec2.Options{Region: "us-west-2", BaseEndpoint: &address, Credentials: credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", "")}),
		reboots: map[string]int{}, rebooted: map[string]func(int){},
	}
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	m.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, forward) }))
	t.Cleanup(m.work.Wait)
	t.Cleanup(m.proxy.Close)
	return m
}

// serve lets a request through, unless EC2 would not.
func (m *moto) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	form, _ := url.ParseQuery(string(body))
	action, id := form.Get("Action"), form.Get("InstanceId.1")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.throttle > 0:
		m.throttle--
		refuse(w, http.StatusServiceUnavailable, "RequestLimitExceeded")
		return
	case action == "RebootInstances" && m.state(r.Context(), id) != types.InstanceStateNameRunning:
		refuse(w, http.StatusBadRequest, "IncorrectInstanceState")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	forward.ServeHTTP(answer, r)
	signal := answer.Code < 300 && (action == "RebootInstances" || action == "TerminateInstances")
	if signal && action == "RebootInstances" {
		m.reboots[id]++
		boot, then := m.reboots[id], m.rebooted[id]
		m.work.Go(func() { then(boot) })
	}
	if signal && m.lose > 0 {
		m.lose--
		panic(http.ErrAbortHandler)
	}
	text := answer.Body.Bytes()
	if m.impaired && action == "DescribeInstanceStatus" {
		text = bytes.ReplaceAll(text, []byte("<status>ok</status>"), []byte("<status>impaired</status>"))
	}
	maps.Copy(w.Header(), answer.Header())
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(text)
}

// refuse answers as EC2 does.
func refuse(w http.ResponseWriter, code int, name string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>refused by the test</Message></Error></Errors><RequestID>r</RequestID></Response>", name)
}

// state returns an instance's state; running if moto does not know it, which moto reports
// itself.
func (m *moto) state(ctx context.Context, id string) types.InstanceStateName {
	answer, err := m.direct.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil || len(answer.Reservations) == 0 {
		return types.InstanceStateNameRunning
	}
	return answer.Reservations[0].Instances[0].State.Name
}

func (m *moto) taken(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reboots[id]
}

// tagged has the plugin find the name of a node in a tag: moto gives instances names of its
// own.
var tagged = []string{"--node-name-from=tag:node-name"}

// node launches an instance and makes a Node of it, which shows its reboots.
func (m *moto) node(t *testing.T, w *world, name string) (id string) {
	t.Helper()
	launched, err := m.direct.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: sdk.String("ami-12c6146b"), InstanceType: types.InstanceTypeP548xlarge, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: sdk.String("node-name"), Value: &name}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	i := launched.Instances[0]
	id = *i.InstanceId
	if _, err := w.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-0", ProviderID: "aws:///us-west-2a/" + id}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	patch := func(format string, args ...any) {
		text := fmt.Appendf(nil, format, args...)
		if _, err := w.cluster.Client().CoreV1().Nodes().Patch(ctx, name, nodetypes.StrategicMergePatchType, text, metav1.PatchOptions{}, "status"); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rebooted[id] = func(boot int) { patch(`{"status":{"nodeInfo":{"bootID":"boot-%d"}}}`, boot) }
	return id
}

func TestConformanceOnMoto(t *testing.T) {
	testkit.Long(t, "TestConformance on a fake EC2")
	cluster := localcluster.ForTest(t, localcluster.Options{})
	m := serveMoto(t)
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		w := &world{cluster: cluster, namespace: cluster.Namespace(t), more: tagged}
		a, b := w.namespace+"-a", w.namespace+"-b"
		ids := map[string]string{a: m.node(t, w, a), b: m.node(t, w, b)}
		w.reach(t, m.proxy.URL)
		return &plugintest.Bench{
			Conn: w.start(t), Node: a, Other: b, Missing: w.namespace + "-c",
			BootID: func(t *testing.T, node string) string {
				n, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return n.Status.NodeInfo.BootID
			},
			Reboots:       func(_ *testing.T, node string) int { return m.taken(ids[node]) },
			Restart:       func(t *testing.T) grpc.ClientConnInterface { w.kill(t); return w.start(t) },
			RebootTimeout: 2 * time.Minute,
		}
	})
}

// TestMoto: what moto reports, and what EC2 reports besides, is understood: throttling, a lost
// answer, an instance that does not run, that is gone, that fails a check, that is not
// known.
func TestMoto(t *testing.T) {
	testkit.Long(t, "TestConformance and the faults of internal/aws on a fake EC2")
	cluster := localcluster.ForTest(t, localcluster.Options{})
	m := serveMoto(t)
	w := &world{cluster: cluster, namespace: cluster.Namespace(t), more: tagged}
	a, b, unknown := w.namespace+"-a", w.namespace+"-b", w.namespace+"-unknown"
	idA, idB := m.node(t, w, a), m.node(t, w, b)
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: unknown, BootID: "boot-0", ProviderID: "aws:///us-west-2a/i-0123456789abcdef0"}); err != nil {
		t.Fatal(err)
	}
	w.reach(t, m.proxy.URL)
	client := v1.NewCSPPluginServiceClient(w.start(t))
	reboot := func(node, key string, want codes.Code) {
		t.Helper()
		_, err := client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: node, IdempotencyKey: key}, grpc.WaitForReady(true))
		if status.Code(err) != want {
			t.Errorf("reboot of %s under %s: %v, want %s", node, key, err, want)
		}
	}
	ready := func(node string) (bool, error) {
		answer, err := client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: node})
		return answer.GetIsReady(), err
	}
	reboot(unknown, "k0", codes.NotFound)
	m.set(func() { m.throttle = 1 })
	reboot(a, "k1", codes.ResourceExhausted)
	m.set(func() { m.lose = 1 })
	reboot(a, "k1", codes.Unavailable)
	testkit.Until(t, time.Minute, func() bool {
		n, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), a, metav1.GetOptions{})
		return err == nil && n.Status.NodeInfo.BootID == "boot-1"
	})
	reboot(a, "k1", codes.OK)
	if n := m.taken(idA); n != 1 {
		t.Errorf("%s was rebooted %d times, want once", a, n)
	}
	m.set(func() { m.impaired = true })
	if is, err := ready(a); is || err != nil {
		t.Errorf("with a failed check %s is ready: %v, %v", a, is, err)
	}
	m.set(func() { m.impaired = false })
	if is, err := ready(a); !is || err != nil {
		t.Errorf("%s is ready: %v, %v", a, is, err)
	}
	if _, err := m.direct.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{idB}}); err != nil {
		t.Fatal(err)
	}
	reboot(b, "k2", codes.Aborted)
	if is, err := ready(b); is || err != nil {
		t.Errorf("stopped, %s is ready: %v, %v", b, is, err)
	}
	if _, err := m.direct.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{idB}}); err != nil {
		t.Fatal(err)
	}
	if _, err := ready(b); status.Code(err) != codes.NotFound {
		t.Errorf("terminated, %s answers %v, want NotFound", b, err)
	}
	if n := m.taken(idB); n != 0 {
		t.Errorf("%s was rebooted %d times", b, n)
	}
}

func (m *moto) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}
