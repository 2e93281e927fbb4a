package quota_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// shelf is a cache that shows what a test puts there, and nothing newer.
type shelf struct {
	mu    sync.Mutex
	nodes map[string]*corev1.Node
	// changed is called for each change.
	changed func(name string)
}

func (s *shelf) Get(name string) (*corev1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil {
		return n, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func (s *shelf) List(labels.Selector) ([]*corev1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*corev1.Node
	for _, n := range s.nodes {
		out = append(out, n)
	}
	return out, nil
}

// add shows a node, in a session or in none.
func (s *shelf) add(name, session string) {
	defer s.changed(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[string]*corev1.Node{}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"gpu": "true", "pool": name[:1]}}}
	if session != "" {
		n.Annotations = map[string]string{nodemark.SessionAnnotation: session}
	}
	s.nodes[name] = n
}

func (s *shelf) remove(name string) {
	defer s.changed(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

func number(n int) quota.Rules {
	return quota.Rules{Limits: []budget.Limit{{Name: quota.Breaker, Nodes: &n}}, Counted: labels.SelectorFromSet(labels.Set{"gpu": "true"})}
}

func newQueue(t *testing.T, rules quota.Rules, nodes ...string) (*quota.Queue, *shelf, *testkit.Clock) {
	t.Helper()
	s, clock := &shelf{}, testkit.NewClock()
	q := quota.New(s, func() (bool, string) { return true, "" }, clock, rules)
	s.changed = q.Changed
	for _, n := range nodes {
		s.add(n, "")
	}
	return q, s, clock
}

// take asks for a place and reports whether it got one.
func take(t *testing.T, q *quota.Queue, name string, order int64) bool {
	t.Helper()
	granted, why, err := q.Take(budget.Candidate{Name: name, Order: order}, "s-"+name)
	if err != nil || granted == (why != "") {
		t.Fatalf("taking a place for %s: %v %q %v", name, granted, why, err)
	}
	return granted
}

func TestNothingIsTakenBeforeTheBudgetIsRead(t *testing.T) {
	q, _, _ := newQueue(t, number(1), "a1")
	if _, _, err := q.Take(budget.Candidate{Name: "a1"}, "s"); !errors.Is(err, quota.ErrNotOpen) {
		t.Errorf("before it is open: %v", err)
	}
	synced := false
	q = quota.New(&shelf{}, func() (bool, string) { return synced, "" }, testkit.NewClock(), number(1))
	q.Open(nil, nil)
	if _, _, err := q.Take(budget.Candidate{Name: "a1"}, "s"); !errors.Is(err, quota.ErrNotOpen) {
		t.Errorf("with an empty cache: %v", err)
	}
	synced = true
	if !take(t, q, "a1", 1) {
		t.Error("no place in an empty budget")
	}
}

// TestACacheThatStandsStill: 100 nodes ask at once while the cache never shows
// a session, then one that never shows their end. The limit holds.
func TestACacheThatStandsStill(t *testing.T) {
	q, cache, _ := newQueue(t, number(7))
	for i := range 100 {
		cache.add(fmt.Sprintf("n%d", i), "")
	}
	q.Open([]quota.Session{{Node: "n98", Session: "old"}, {Node: "n99", Session: "old"}}, nil)
	var all sync.WaitGroup
	granted := make(chan string, 100)
	for i := range 90 {
		all.Go(func() {
			name := fmt.Sprintf("n%d", i)
			if ok, _, err := q.Take(budget.Candidate{Name: name, Order: int64(i)}, "s"); ok && err == nil {
				granted <- name
			}
		})
	}
	all.Wait()
	if len(granted) != 5 {
		t.Fatalf("%d places given, 7 allowed, 2 taken before", len(granted))
	}
	for len(granted) > 0 {
		name := <-granted
		cache.add(name, "s")
		q.Settle(name, "")
	}
	q.Settle("n98", "")
	q.Settle("n99", "")
	if n := count(t, q, "nvsentinel_fault_quarantine_budget_used"); n != 5 {
		t.Errorf("%v sessions are counted, the cache still shows 5", n)
	}
}

func TestTheOldestIsServedFirst(t *testing.T) {
	q, _, _ := newQueue(t, number(1), "a1", "a2", "a3", "b1")
	q.Open([]quota.Session{{Node: "a1", Session: "s"}}, []quota.Waiter{{Candidate: budget.Candidate{Name: "a3", Order: 3}}})
	for name, order := range map[string]int64{"a2": 2, "b1": 4} {
		if take(t, q, name, order) {
			t.Errorf("%s got a place in a full budget", name)
		}
	}
	q.Settle("a1", "")
	if take(t, q, "b1", 4) || take(t, q, "a3", 3) {
		t.Error("a younger node got the place of an older one")
	}
	if !take(t, q, "a2", 2) {
		t.Error("the oldest got no place")
	}
	q.Settle("a2", "")
	q.Leave("a3") // nothing can be decided about it now
	if !take(t, q, "b1", 4) {
		t.Error("a node of which nothing can be said stands in the way")
	}
}

func TestANodeKeepsItsPlace(t *testing.T) {
	q, cache, _ := newQueue(t, number(1), "a1", "a2")
	q.Open(nil, nil)
	for range 2 {
		if !take(t, q, "a1", 2) {
			t.Error("a place is given, and again to who has it")
		}
	}
	if take(t, q, "a2", 1) {
		t.Error("the place was given twice")
	}
	cache.add("a1", "s-a1")
	q.Settle("a1", "s-a1")
	q.Settle("a1", "next") // one session ended and another began in one look
	if take(t, q, "a2", 1) {
		t.Error("the place was given away in mid-session")
	}
	q.Settle("a1", "")
	if take(t, q, "a2", 1) {
		t.Error("a Node that bears a session has no place")
	}
	cache.add("a1", "")
	if !take(t, q, "a2", 1) {
		t.Error("no place after the release")
	}
}

func TestADeletedNodeKeepsItsPlaceForAWhile(t *testing.T) {
	q, cache, clock := newQueue(t, number(1), "a1", "a2")
	q.Open(nil, nil)
	take(t, q, "a1", 1)
	cache.remove("a1")
	q.Settle("a1", "s-a1")
	if take(t, q, "a2", 2) {
		t.Error("the place of a deleted node was given away at once")
	}
	clock.Step(14 * time.Minute)
	cache.add("a1", "")
	if take(t, q, "a2", 2) {
		t.Error("the node is back and has no place")
	}
	cache.remove("a1")
	clock.Step(time.Minute)
	if take(t, q, "a2", 2) {
		t.Error("the second absence counts from the first")
	}
	clock.Step(15 * time.Minute)
	if !take(t, q, "a2", 2) {
		t.Error("the place of a node that stays away was kept")
	}
}

// TestSource: nodes are enqueued when a window passes, a place is free, the rules
// change or Nodes do.
func TestSource(t *testing.T) {
	rules := number(1)
	rules.Limits[0].Duration = time.Hour
	q, cache, clock := newQueue(t, rules, "a1", "a2", "a3", "a4")
	q.Open(nil, nil)
	enqueued := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- q.Source(ctx, func(name string) { enqueued <- name }) }()
	served := map[string]bool{} // may be enqueued once more, decided right before
	expect := func(name string) {
		t.Helper()
		for deadline := time.After(2 * time.Minute); ; {
			select {
			case got := <-enqueued:
				if served[got] {
					continue
				}
				if got != name {
					t.Fatalf("enqueued %s, want %s", got, name)
				}
				if !take(t, q, name, 0) {
					t.Fatalf("%s was enqueued for nothing", name)
				}
				served[name] = true
				for len(enqueued) > 0 {
					if again := <-enqueued; !served[again] {
						t.Fatalf("enqueued %s too", again)
					}
				}
				return
			case <-deadline:
				t.Fatalf("%s is not enqueued", name)
			}
		}
	}
	take(t, q, "a1", 1)
	for i, name := range []string{"a2", "a3", "a4"} {
		take(t, q, name, int64(2+i))
	}
	testkit.Until(t, 2*time.Minute, clock.HasWaiters)
	clock.Step(time.Hour)
	expect("a2")
	q.Settle("a2", "")
	expect("a3")
	cache.add("a3", "s-a3")
	q.Settle("a3", "s-a3")
	q.Set(number(3)) // without a window all sessions count: a1, a3, and room for one
	expect("a4")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	q, cache, clock := newQueue(t, number(1))
	if all := gather(t, q); len(all) != 0 {
		t.Errorf("a standby shows %v", all)
	}
	q.Open(nil, nil)
	want := map[string]float64{
		"nvsentinel_fault_quarantine_held_nodes": 0, "nvsentinel_fault_quarantine_held_oldest_seconds": 0,
		"nvsentinel_fault_quarantine_budget_used circuitBreaker": 0, "nvsentinel_fault_quarantine_budget_allowed circuitBreaker": 1,
		"fault_quarantine_breaker_state TRIPPED": 0, "fault_quarantine_breaker_state CLOSED": 1, "fault_quarantine_breaker_utilization": 0,
	}
	if diff := cmp.Diff(want, gather(t, q)); diff != "" {
		t.Errorf("without nodes (-want +got):\n%s", diff)
	}
	cache.add("a1", "")
	cache.add("a2", "")
	take(t, q, "a1", 1)
	take(t, q, "a2", 2)
	clock.Step(time.Minute)
	want["nvsentinel_fault_quarantine_held_nodes"], want["nvsentinel_fault_quarantine_held_oldest_seconds"] = 1, 60
	want["nvsentinel_fault_quarantine_budget_used circuitBreaker"], want["fault_quarantine_breaker_utilization"] = 1, 1
	want["fault_quarantine_breaker_state TRIPPED"], want["fault_quarantine_breaker_state CLOSED"] = 1, 0
	if diff := cmp.Diff(want, gather(t, q)); diff != "" {
		t.Errorf("one in, one held (-want +got):\n%s", diff)
	}
}

func count(t *testing.T, q *quota.Queue, name string) float64 {
	t.Helper()
	for key, v := range gather(t, q) {
		if strings.HasPrefix(key, name) {
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func gather(t *testing.T, q *quota.Queue) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(q)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				key = append(key, l.GetValue())
			}
			out[strings.Join(slices.Clip(key), " ")] = m.GetGauge().GetValue()
		}
	}
	return out
}
