package forward_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/nvidia/nvsentinel/cli/internal/forward"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/remote"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// gateway is where a store with one record is read.
func gateway(t *testing.T) (address, id string) {
	t.Helper()
	dsn := storetest.SQLiteDSN(t)
	r := storetest.Record("n")
	storetest.MustAppend(t, storetest.Open(t, dsn, storeopen.Options{}), r)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reader := storetest.Reader(t, dsn)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- remote.Serve(ctx, l, reader, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), r.ID
}

func open(t *testing.T, g *forward.Gateways) store.Reader {
	t.Helper()
	r := remote.Open(g.Dial)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// refused is an address where nobody listens.
const refused = "127.0.0.1:1"

// TestForward: forwarding uses WebSocket, and SPDY where WebSocket is refused. A gateway
// that does not work is skipped.
func TestForward(t *testing.T) {
	for name, webSocket := range map[string]bool{"WebSocket": true, "SPDY": false} {
		t.Run(name, func(t *testing.T) {
			address, id := gateway(t)
			s := &standIn{t: t, webSocket: webSocket}
			for _, name := range []string{"a", "b", "d"} {
				s.add(name, refused)
			}
			s.add("c", address)
			s.add("not-ready", refused, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
			r := open(t, s.gateways())
			for range 3 {
				list, err := r.List(t.Context(), store.Query{})
				if err != nil || len(list) != 1 || list[0].ID != id {
					t.Fatalf("%d records, %v", len(list), err)
				}
			}
			if s.inside() != "c" {
				t.Errorf("the last way in led to %s, want c", s.inside())
			}
		})
	}
}

// TestAGatewayGoes while somebody follows: the next read finds another one, without a
// word to the caller.
func TestAGatewayGoes(t *testing.T) {
	address, id := gateway(t)
	s := &standIn{t: t, webSocket: true}
	s.add("first", address)
	r := open(t, s.gateways())
	if _, err := r.Get(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	s.add("second", address)
	s.lose("first")
	testkit.Until(t, time.Minute, func() bool { // a tunnel ends a moment after its pod
		got, err := r.Get(t.Context(), id)
		return err == nil && got.ID == id && s.inside() == "second"
	})
}

// TestMissingPermissions: the error names the missing permission and what to do.
func TestMissingPermissions(t *testing.T) {
	for name, tt := range map[string]struct {
		s       *standIn
		add     func(*standIn)
		message []string
	}{
		"no gateway":        {&standIn{}, func(*standIn) {}, []string{"namespace suite has none", "-n", "--store"}},
		"none is ready":     {&standIn{}, func(s *standIn) { s.add("a", refused, func(p *corev1.Pod) { p.Status.Conditions = nil }) }, []string{"none in namespace suite is Ready", "kubectl"}},
		"may not list":      {&standIn{refusesList: "pods is forbidden"}, func(*standIn) {}, []string{"permission to list pods in namespace suite", "docs/reference/cli.md"}},
		"may not forward":   {&standIn{refusesForward: "pods \"a\" is forbidden"}, func(s *standIn) { s.add("a", refused) }, []string{"gateway a: ", "permission to create pods/portforward in namespace suite"}},
		"an older gateway":  {&standIn{webSocket: true}, func(s *standIn) { s.add("a", refused) }, []string{"gateway a: ", "at port 9446: check that its version is at least", "--inspect-address", "connection refused"}},
		"an older, by SPDY": {&standIn{}, func(s *standIn) { s.add("a", refused) }, []string{"check that its version is at least"}},
		"another port": {&standIn{}, func(s *standIn) {
			s.add("a", "only 9446", func(p *corev1.Pod) {
				p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "grpc", ContainerPort: 8443}, {Name: "inspect", ContainerPort: 9999}}}}
			})
		}, []string{"at port 9999"}},
		"each is told": {&standIn{}, func(s *standIn) { s.add("a", refused); s.add("b", refused) }, []string{"gateway a: ", "gateway b: "}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.s
			s.t = t
			tt.add(s)
			err := open(t, s.gateways()).Ping(t.Context())
			if err == nil {
				t.Fatal("the store was read")
			}
			for _, want := range tt.message {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}

// silent is a way into pods that never comes to an end.
type silent struct{}

func (silent) Open(ctx context.Context, _ string) (httpstream.Connection, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAGatewayHangs: it is given up, and so is the next.
func TestAGatewayHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []corev1.Pod
		s := &standIn{t: t}
		s.add("a", "")
		s.add("b", "")
		pods = s.pods
		g := &forward.Gateways{Pods: fake.NewClientset(&corev1.PodList{Items: labelled(pods)}).CoreV1(), Namespace: namespace, Tunnels: silent{}}
		_, err := g.Dial(t.Context())
		if err == nil || !strings.Contains(err.Error(), "gateway a: ") || !strings.Contains(err.Error(), "gateway b: ") {
			t.Errorf("got %v", err)
		}
	})
}

// labelled are pods as the chart labels those of gateways.
func labelled(pods []corev1.Pod) []corev1.Pod {
	for i := range pods {
		pods[i].Namespace, pods[i].Labels = namespace, map[string]string{"app.kubernetes.io/name": "platform-connectors-gateway"}
	}
	return pods
}
