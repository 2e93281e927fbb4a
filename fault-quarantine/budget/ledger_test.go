package budget_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// nodes are GPU nodes, the first sick of them in quarantine since an hour.
func nodes(total, sick int) []budget.Node {
	var out []budget.Node
	for i := range total {
		out = append(out, budget.Node{
			Name: fmt.Sprintf("g%d", i), Counted: true, InSession: i < sick, Began: now.Add(-time.Hour),
			Labels: map[string]string{"pool": []string{"a", "b"}[i%2]},
		})
	}
	return out
}

// queue are candidates that are not known as GPU nodes unless gpu is set.
func queue(gpu bool, names ...string) []budget.Candidate {
	var out []budget.Candidate
	for i, name := range names {
		pool, _, _ := strings.Cut(name, "-")
		out = append(out, budget.Candidate{Name: name, Counted: gpu, Order: int64(len(names) - i), Labels: map[string]string{"pool": pool}})
	}
	return out
}

func TestAdmit(t *testing.T) {
	percent := func(p int) budget.Limit { return budget.Limit{Name: "p", Percentage: &p} }
	number := func(n int) budget.Limit { return budget.Limit{Name: "n", Nodes: &n} }
	with := func(l budget.Limit, edit func(*budget.Limit)) budget.Limit { edit(&l); return l }
	tests := map[string]struct {
		limits []budget.Limit
		nodes  []budget.Node
		queue  []budget.Candidate
		want   []string
		why    string
	}{
		"no limit":                       {nil, nodes(2, 2), queue(true, "x"), []string{"x"}, ""},
		"the oldest first":               {[]budget.Limit{number(1)}, nodes(4, 0), queue(true, "young", "old"), []string{"old"}, "budget n: 1 nodes are in quarantine, 1 allowed"},
		"percent is rounded up":          {[]budget.Limit{percent(50)}, nodes(3, 1), queue(true, "x"), []string{"x"}, ""},
		"percent is used up":             {[]budget.Limit{percent(50)}, nodes(4, 2), queue(true, "x"), nil, "2 allowed"},
		"both bounds hold":               {[]budget.Limit{percent(100), number(2)}, nodes(4, 1), queue(true, "c", "b", "a"), []string{"a"}, "budget n"},
		"zero percent lets nobody in":    {[]budget.Limit{percent(0)}, nodes(4, 0), queue(true, "x"), nil, "0 allowed"},
		"zero nodes let nobody in":       {[]budget.Limit{number(0)}, nodes(4, 0), queue(true, "x"), nil, "0 allowed"},
		"no GPU node at all":             {[]budget.Limit{percent(50)}, nil, queue(false, "x"), []string{"x"}, ""},
		"no GPU node, the second waits":  {[]budget.Limit{percent(50)}, nil, queue(false, "y", "x"), []string{"x"}, "1 allowed"},
		"all of no GPU nodes":            {[]budget.Limit{percent(100)}, nil, queue(false, "y", "x"), []string{"x", "y"}, ""},
		"a session without a GPU counts": {[]budget.Limit{percent(50)}, []budget.Node{{Name: "c", InSession: true}}, queue(false, "x"), nil, "1 allowed"},
		"outside the window": {
			[]budget.Limit{with(number(1), func(l *budget.Limit) { l.Duration = time.Hour })}, nodes(4, 3), queue(true, "x"), []string{"x"}, "",
		},
		"within the window": {
			[]budget.Limit{with(number(1), func(l *budget.Limit) { l.Duration = time.Hour + 1 })}, nodes(4, 3), queue(true, "x"), nil, "were quarantined within",
		},
		"an unknown beginning counts": {
			[]budget.Limit{with(number(1), func(l *budget.Limit) { l.Duration, l.ResetAt = time.Hour, now })},
			[]budget.Node{{Name: "c", InSession: true}}, queue(true, "x"), nil, "1 allowed",
		},
		"after a reset": {
			[]budget.Limit{with(number(1), func(l *budget.Limit) { l.ResetAt = now.Add(-time.Minute) })}, nodes(4, 3), queue(true, "x"), []string{"x"}, "",
		},
		"per pool, a full one blocks no other": {
			[]budget.Limit{with(number(1), func(l *budget.Limit) { l.Label = "pool" })}, nodes(4, 1), queue(true, "b-2", "b-1", "a-1"), []string{"b-1"}, `pool="a"`,
		},
		"per pool, percent of the pool": {
			[]budget.Limit{with(percent(50), func(l *budget.Limit) { l.Label = "pool" })}, nodes(8, 0), queue(true, "a-3", "a-2", "a-1"), []string{"a-1", "a-2"}, `of pool="a"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := budget.NewLedger(tt.limits, tt.nodes...).Admit(tt.queue, now)
			if diff := cmp.Diff(tt.want, got.Granted); diff != "" {
				t.Errorf("granted (-want +got):\n%s", diff)
			}
			if len(got.Granted)+len(got.Refused) != len(tt.queue) {
				t.Errorf("%d candidates, decided on %+v", len(tt.queue), got)
			}
			found := tt.why == "" && len(got.Refused) == 0
			for _, why := range got.Refused {
				found = found || tt.why != "" && strings.Contains(why, tt.why)
			}
			if !found {
				t.Errorf("refused for %v, want %q", got.Refused, tt.why)
			}
		})
	}
}

func TestFullest(t *testing.T) {
	one, half := 1, 50
	limits := []budget.Limit{{Nodes: &one, Label: "pool"}, {Percentage: &half}, {Percentage: &half}}
	got := budget.NewLedger(limits, nodes(4, 1)...).Fullest(now)
	if diff := cmp.Diff([]budget.Use{{Used: 1, Allowed: 1}, {Used: 1, Allowed: 2}, {Used: 1, Allowed: 2}}, got); diff != "" {
		t.Error(diff)
	}
	// Three nodes of pool a and nine of pool b, of which one and seven are out.
	var pools []budget.Node
	for i := range 12 {
		pool := []string{"a", "b", "b", "b"}[i%4]
		pools = append(pools, budget.Node{Name: fmt.Sprint(i), Counted: true, InSession: i == 0 || pool == "b" && i < 10, Labels: map[string]string{"pool": pool}})
	}
	most := 100
	for range 20 {
		got := budget.NewLedger([]budget.Limit{{Percentage: &most, Label: "pool"}}, pools...).Fullest(now)
		if got[0] != (budget.Use{Used: 7, Allowed: 9}) {
			t.Fatalf("of two pools with room for two: %+v", got)
		}
	}
	if got := budget.NewLedger(limits).Fullest(now); got[1] != (budget.Use{Allowed: 1}) {
		t.Errorf("of no nodes: %+v", got)
	}
}

func TestValidate(t *testing.T) {
	minus, over := -1, 101
	for want, l := range map[string]budget.Limit{
		"budgets[0].name is empty":     {Nodes: new(int)},
		"budgets[0] has no limit":      {Name: "x"},
		"budgets[0].percentage is 101": {Name: "x", Percentage: &over},
		"budgets[0].nodes is -1":       {Name: "x", Nodes: &minus},
		"budgets[0].duration is -1s":   {Name: "x", Nodes: new(int), Duration: -time.Second},
	} {
		if err := l.Validate("budgets[0]"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	for _, l := range []budget.Limit{{Name: "x", Nodes: new(int)}, {Name: "x", Percentage: new(int)}, {Name: "x", Percentage: new(100)}} {
		if err := l.Validate("b"); err != nil {
			t.Error(err)
		}
	}
}

// TestRefusalNamesQuarantinedNodes: a refusal names a limited number of quarantined nodes.
func TestRefusalNamesQuarantinedNodes(t *testing.T) {
	var nodes []budget.Node
	for i := range 10 {
		nodes = append(nodes, budget.Node{Name: fmt.Sprintf("gpu-%d", 9-i), InSession: i != 4})
	}
	limits := []budget.Limit{{Name: "b", Nodes: new(3)}}
	d := budget.NewLedger(limits, nodes...).Admit([]budget.Candidate{{Name: "gpu-5"}}, time.Now())
	want := "budget b: 9 nodes are in quarantine, 3 allowed, used by gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-6, gpu-7, gpu-8 and 1 more"
	if got := d.Refused["gpu-5"]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d = budget.NewLedger(limits, nodes[1:]...).Admit([]budget.Candidate{{Name: "gpu-5"}}, time.Now())
	want = "budget b: 8 nodes are in quarantine, 3 allowed, used by gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-6, gpu-7, gpu-8"
	if got := d.Refused["gpu-5"]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestALedgerKeepsUp: after any changes, it reports the same as one made of the same
// nodes, and nothing of a node is left once it is removed.
func TestALedgerKeepsUp(t *testing.T) {
	rolled := rand.New(rand.NewPCG(1, 2))
	half, five := 50, 5
	limits := []budget.Limit{
		{Name: "p", Percentage: &half}, {Name: "w", Nodes: &five, Duration: time.Hour, ResetAt: now.Add(-40 * time.Minute)},
		{Name: "z", Nodes: &five, Label: "pool"},
	}
	ledger, known := budget.NewLedger(limits), map[string]budget.Node{}
	for range 2000 {
		n := budget.Node{
			Name: fmt.Sprint("n", rolled.IntN(40)), Counted: rolled.IntN(3) > 0, InSession: rolled.IntN(2) > 0,
			Began: now.Add(-time.Duration(rolled.IntN(90)) * time.Minute), Labels: map[string]string{"pool": fmt.Sprint(rolled.IntN(3))},
		}
		if rolled.IntN(4) == 0 {
			ledger.Remove(n.Name)
			delete(known, n.Name)
		} else {
			ledger.Set(n)
			known[n.Name] = n
		}
		recreated := budget.NewLedger(limits, slices.Collect(maps.Values(known))...)
		waiting := queue(rolled.IntN(2) > 0, "0-x", "1-y", "2-z", "0-v")
		if diff := cmp.Diff(recreated.Admit(waiting, now), ledger.Admit(waiting, now)); diff != "" {
			t.Fatalf("made anew, and kept up: %s", diff)
		}
		if diff := cmp.Diff(recreated.Fullest(now), ledger.Fullest(now)); diff != "" {
			t.Fatalf("made anew, and kept up: %s", diff)
		}
		if alone := ledger.Admit(waiting[:1], now); alone.Refused[waiting[0].Name] != ledger.Refuses(waiting[0], now) {
			t.Fatalf("one candidate alone: %v, %q", alone, ledger.Refuses(waiting[0], now))
		}
	}
	for name := range known {
		ledger.Remove(name)
	}
	if diff := cmp.Diff(budget.NewLedger(limits).Fullest(now), ledger.Fullest(now)); diff != "" {
		t.Errorf("something is left: %s", diff)
	}
}
