package decision_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// A history that fails is reported with its seed; the file that rapid would keep of
// it in testdata would be read as a script.
func init() {
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		panic(err)
	}
}

const naiveRules = `
[[rules]]
name = "count"
action = "NONE"
clear = "manual"
window = "30m"
by = ["gpu", "code"]
count = 3
[[rules]]
name = "distinct"
action = "NONE"
clear = "manual"
window = "20m"
by = ["code"]
distinct = ["gpu"]
count = 2
[[rules]]
name = "bursts"
action = "NONE"
clear = "manual"
window = "40m"
by = ["gpu", "code"]
count = 2
[rules.bursts]
gap = "3m"
sticky = ["79", "74"]
stickyWithin = "9m"
last = "once"
[rules.bursts.among]
[[rules]]
name = "solo"
action = "NONE"
clear = "manual"
window = "15m"
by = ["gpu"]
[rules.when]
codes = ["74"]
[[rules.unless]]
notCodes = ["74"]
open = true
by = ["gpu"]
`

// clusterRules are the same rules for the cluster, and one that counts nodes.
var clusterRules = strings.ReplaceAll(naiveRules, "\"\naction", "/cluster\"\nscope = \"cluster\"\naction") + `
[[rules]]
name = "nodes/cluster"
scope = "cluster"
action = "NONE"
clear = "manual"
window = "20m"
by = ["code"]
distinct = ["node"]
count = 3
[rules.when]
codes = ["79"]
`

// ev is an event of one code and one GPU of a node at a minute; machine counts
// the machines that the node has been.
type ev struct {
	at, machine      int
	node, code, gpu  string
	healthy, persist bool
}

// naive reports whether one of the rules above matches at the last of the events
// that it may see, by counting.
func naive(name string, window int, seen []ev) bool {
	t, n, values, inLast, sticky, machine := seen[len(seen)-1], 0, map[string]bool{}, 0, -1000, map[string]int{}
	last, counted, solo := -1000, false, t.code == "74"
	for _, e := range seen {
		if !e.healthy && !e.persist && (name != "nodes" || e.code == "79") {
			machine[e.node] = e.machine
		}
	}
	for _, e := range seen {
		if e.healthy || e.persist || t.at-e.at > window || e.machine != machine[e.node] {
			continue
		}
		same := e.gpu == t.gpu && e.code == t.code
		if value := map[string]string{"distinct": e.gpu, "nodes": e.node}[name]; name == "count" && same || value != "" && e.code == t.code && !values[value] {
			n, values[value] = n+1, true
		}
		if name == "bursts" && e.gpu == t.gpu {
			sticks := e.code == "79" || e.code == "74"
			if e.at-last > 3 && (!sticks || e.at-sticky > 9) {
				counted, inLast = false, 0
			}
			if last = e.at; sticks {
				sticky = e.at
			}
			if same {
				inLast++
			}
			if same && !counted {
				n, counted = n+1, true
			}
		}
		recovered := slices.ContainsFunc(seen, func(r ev) bool { return r.healthy && !r.persist && r.node == e.node && r.gpu == e.gpu && r.at > e.at })
		solo = solo && (e.gpu != t.gpu || e.code == "74" || recovered)
	}
	if name == "bursts" && inLast != 1 {
		n--
	}
	return map[string]bool{"count": n >= 3, "distinct": n >= 2, "bursts": n >= 2, "solo": solo, "nodes": n >= 3 && t.code == "79"}[name]
}

// expect is what is derived of a whole history, "rule subject@minute", sorted.
func expect(rules []rule.Rule, h []ev) (out []string) {
	fired := map[string]int{}
	for i, t := range h {
		for _, r := range rules {
			name, window, seen, where := strings.TrimSuffix(r.Name, "/cluster"), int(r.Window.Minutes()), h[:i+1], ""
			if r.Scope == rule.OnNode {
				seen, where = slices.DeleteFunc(slices.Clone(seen), func(e ev) bool { return e.node != t.node }), t.node
			}
			subject := where + map[string]string{"count": t.gpu + t.code, "bursts": t.gpu + t.code, "distinct": t.code, "solo": t.gpu, "nodes": t.code}[name]
			at, before := fired[r.Name+subject]
			if t.healthy || t.persist || before && t.at-at <= window || !naive(name, window, seen) {
				continue
			}
			fired[r.Name+subject] = t.at
			out = append(out, fmt.Sprintf("%s %s@%d", r.Name, subject, t.at))
		}
	}
	slices.Sort(out)
	return out
}

func history(t *rapid.T) []ev {
	var h []ev
	at, machines := 0, map[string]int{}
	for range rapid.IntRange(0, 40).Draw(t, "events") {
		at += rapid.IntRange(1, 8).Draw(t, "minutes")
		node := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node")
		if rapid.IntRange(0, 9).Draw(t, "exchanged") == 0 {
			machines[node]++
		}
		h = append(h, ev{
			at: at, node: node, machine: machines[node],
			code: rapid.SampledFrom([]string{"13", "74", "79"}).Draw(t, "code"), gpu: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "gpu"),
			healthy: rapid.IntRange(0, 7).Draw(t, "healthy") == 0, persist: rapid.IntRange(0, 7).Draw(t, "persist") == 0,
		})
	}
	return h
}

func (e ev) fact(i int) *decision.Fact {
	at := start.Add(time.Duration(e.at) * time.Minute)
	r := record.Record{ID: fmt.Sprint("e", i), Append: int64(i + 1), CreatedAt: at, Event: record.Event{
		ID: fmt.Sprint("e", i), Agent: "a", CheckName: "c", NodeName: e.node, IsFatal: true, ErrorCode: []string{e.code}, GeneratedTimestamp: at,
		EntitiesImpacted: []record.Entity{{EntityType: "GPU_UUID", EntityValue: e.gpu}}, ProcessingStrategy: record.Process,
	}, Node: record.NodeIdentity{ProviderID: fmt.Sprint(e.node, "-", e.machine)}}
	if e.healthy {
		r.Event.IsHealthy, r.Event.IsFatal, r.Event.ErrorCode = true, false, nil
	}
	if e.persist {
		r.Event.ProcessingStrategy = record.PersistOnly
	}
	return decision.NewFact(r)
}

// algorithm is a way to evaluate a history.
type algorithm int

const (
	inOrder algorithm = iota
	allAtOnce
	anyOrder // with a clock that makes nothing too old
)

// story is the windows of a history, and what was derived.
type story struct {
	t       *rapid.T
	rules   []rule.Rule
	windows map[string]*decision.Window // by node; "" is the cluster's
	ids     map[string]bool
	out     []string
}

func (s *story) window(node string) *decision.Window {
	if s.windows[node] == nil {
		s.windows[node] = decision.NewWindow(rule.OnNode.Of(s.rules))
		if node == "" {
			s.windows[node] = decision.NewClusterWindow(rule.OnCluster.Of(s.rules))
		}
	}
	return s.windows[node]
}

func (s *story) evaluate(node string, from, now time.Time) {
	w := s.window(node)
	for _, f := range w.Evaluate(from, now) {
		if f.Reason != decision.Matched {
			continue
		}
		e := f.Event(record.Process)
		if s.ids[e.ID] {
			s.t.Fatalf("id of %s %s given twice", e.CheckName, f.Subject)
		}
		s.ids[e.ID] = true
		// The node's window and the cluster's both get it, and each takes its own.
		for _, node := range []string{e.NodeName, ""} {
			s.window(node).Add(decision.NewFact(record.Record{ID: e.ID, Event: e}))
		}
		subject := strings.NewReplacer("gpu=GPU_UUID:", "", " code=", "", "code=", "").Replace(f.Subject)
		s.out = append(s.out, fmt.Sprintf("%s %s@%d", e.CheckName, node+subject, int(f.Trigger.At.Sub(start).Minutes())))
	}
}

// stories evaluates the events in an order of arrival and lists what is derived as
// expect does.
func stories(t *rapid.T, rules []rule.Rule, h []ev, arrival []int, how algorithm) []string {
	s := &story{t: t, rules: rules, windows: map[string]*decision.Window{}, ids: map[string]bool{}}
	for _, i := range arrival {
		for _, node := range []string{h[i].node, ""} {
			f, now, w := h[i].fact(i), start, s.window(node)
			if !w.Concerns(f) {
				continue
			}
			from, changed := w.Add(f)
			if how == inOrder {
				now = f.At
			}
			if changed && how != allAtOnce {
				s.evaluate(node, from, now)
			}
			if how == inOrder {
				w.Prune(now)
			}
		}
	}
	if how == allAtOnce {
		for node := range s.windows {
			s.evaluate(node, time.Time{}, start)
		}
	}
	slices.Sort(s.out)
	return s.out
}

// TestAgainstTheNaiveEvaluator: over random histories the rules find what plain counting
// finds, one by one as the events come and all at once; in any other order of arrival they
// find something about the same subjects, once. The rules of the cluster are those of a
// node, which see more events.
func TestAgainstTheNaiveEvaluator(t *testing.T) {
	for name, text := range map[string]string{
		"both scopes": naiveRules + clusterRules, "one that counts nodes": clusterRules[strings.LastIndex(clusterRules, "[[rules]]"):],
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := rule.Parse("naive", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) { against(t, rules) })
		})
	}
}

func against(t *rapid.T, rules []rule.Rule) {
	h := history(t)
	order := make([]int, len(h))
	for i := range order {
		order[i] = i
	}
	want := expect(rules, h)
	for _, how := range []algorithm{inOrder, allAtOnce} {
		if got := stories(t, rules, h, order, how); !slices.Equal(got, want) {
			t.Fatalf("all at once: %v\n got %v\nwant %v\nof %+v", how == allAtOnce, got, want, h)
		}
	}
	found := map[string]bool{}
	for _, s := range stories(t, rules, h, rapid.Permutation(order).Draw(t, "arrival"), anyOrder) {
		found[s[:strings.Index(s, "@")]] = true
	}
	for _, s := range want {
		if !found[s[:strings.Index(s, "@")]] {
			t.Fatalf("not found in another order: %s of %+v", s, h)
		}
	}
}
