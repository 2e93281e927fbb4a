package reconciler_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// calls are what a drainer asks the API server about one node: its watches and
// its Events are left out.
type calls struct {
	http.RoundTripper
	node string
	mu   *sync.Mutex
	made *[]string
}

func (c calls) RoundTrip(r *http.Request) (*http.Response, error) {
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	ours := slices.Contains(part, c.node) || strings.Contains(r.URL.Query().Get("fieldSelector"), c.node) || part[len(part)-1] == "eviction"
	if ours {
		kind := slices.IndexFunc(part, func(p string) bool { return p == "nodes" || p == "pods" })
		c.mu.Lock()
		*c.made = append(*c.made, r.Method+" "+part[kind])
		c.mu.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

// counting restarts the drainer with its calls counted; the Node is marked and
// the caches show it.
func (s *stage) counting(session string) func() string {
	s.t.Helper()
	var mu sync.Mutex
	var made []string
	s.wrap = func(rt http.RoundTripper) http.RoundTripper { return calls{rt, s.node, &mu, &made} }
	s.mark(session)
	s.world.Store(nil)
	s.restart()
	s.eventually(func() error {
		cluster := s.world.Load()
		if cluster == nil {
			return errors.New("the drainer has not started")
		}
		live, err := kube.ReadNode(s.t.Context(), s.cluster.Client(), s.node)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(live.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }) {
			return errors.New("the taint of the cordon is not there yet")
		}
		cached, err := cluster.Node(s.node)
		if err == nil && (cached == nil || cached.ResourceVersion != live.ResourceVersion) {
			err = errors.New("the cache shows an older Node")
		}
		return err
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(made, ", ")
	}
}

// TestDrainWithoutPodsMakesTwoAPIRequests: the Node and its pods are read before the
// end, which the record shows; nothing is read after it, and nothing is written.
func TestDrainWithoutPodsMakesTwoAPIRequests(t *testing.T) {
	s := newStage(t)
	made := s.counting("r1")
	s.fault("r1", "r1")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.handle()
	if got, want := made(), "GET nodes, GET pods"; got != want {
		t.Errorf("asked %s; want %s", got, want)
	}
}

// TestDrainMakesOneAPIRequestPerPod: besides that, the label of the
// beginning and one read of the Node before the pods are taken away.
func TestDrainMakesOneAPIRequestPerPod(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "a"})
	s.pod(localcluster.PodSpec{Name: "b"})
	made := s.counting("r1")
	s.waitCached(2)
	s.fault("r1", "r1")
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantLabel(nodemark.DrainSucceeded)
	s.handle()
	if got, want := made(), "PATCH nodes, GET nodes, POST pods, POST pods, GET nodes, GET pods, PATCH nodes"; got != want {
		t.Errorf("asked %s; want %s", got, want)
	}
}
