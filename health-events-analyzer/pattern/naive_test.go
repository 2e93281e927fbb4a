package pattern_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/pattern"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// A history that fails is told with its seed; the file that rapid would keep of
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

// ev is an event of one code and one GPU at a minute.
type ev struct {
	at               int
	code, gpu        string
	healthy, persist bool
}

// naive says which of the rules above match at the events h[i], by counting.
func naive(name string, window int, h []ev, i int) bool {
	t, n, gpus, inLast, sticky := h[i], 0, map[string]bool{}, 0, -1000
	last, counted, solo := -1000, false, t.code == "74"
	for _, e := range h[:i+1] {
		if e.healthy || e.persist || t.at-e.at > window {
			continue
		}
		same := e.gpu == t.gpu && e.code == t.code
		if name == "count" && same || name == "distinct" && e.code == t.code && !gpus[e.gpu] {
			n++
		}
		gpus[e.gpu] = gpus[e.gpu] || e.code == t.code
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
		recovered := slices.ContainsFunc(h[:i+1], func(r ev) bool { return r.healthy && !r.persist && r.gpu == e.gpu && r.at > e.at })
		solo = solo && (e.gpu != t.gpu || e.code == "74" || recovered)
	}
	if name == "bursts" && inLast != 1 {
		n--
	}
	return map[string]bool{"count": n >= 3, "distinct": n >= 2, "bursts": n >= 2, "solo": solo}[name]
}

// expect is what is derived of a whole history, "rule subject@minute".
func expect(rules []rule.Rule, h []ev) (out []string) {
	fired := map[string]int{}
	for i, t := range h {
		for _, r := range rules {
			subject := map[string]string{"count": t.gpu + t.code, "bursts": t.gpu + t.code, "distinct": t.code, "solo": t.gpu}[r.Name]
			at, before := fired[r.Name+subject]
			if t.healthy || t.persist || before && t.at-at <= int(r.Window.Minutes()) || !naive(r.Name, int(r.Window.Minutes()), h, i) {
				continue
			}
			fired[r.Name+subject] = t.at
			out = append(out, fmt.Sprintf("%s %s@%d", r.Name, subject, t.at))
		}
	}
	return out
}

func history(t *rapid.T) []ev {
	var h []ev
	at := 0
	for range rapid.IntRange(0, 40).Draw(t, "events") {
		at += rapid.IntRange(1, 8).Draw(t, "minutes")
		h = append(h, ev{
			at: at, code: rapid.SampledFrom([]string{"13", "74", "79"}).Draw(t, "code"), gpu: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "gpu"),
			healthy: rapid.IntRange(0, 7).Draw(t, "healthy") == 0, persist: rapid.IntRange(0, 7).Draw(t, "persist") == 0,
		})
	}
	return h
}

func (e ev) fact(i int) *pattern.Fact {
	at := start.Add(time.Duration(e.at) * time.Minute)
	r := record.Record{ID: fmt.Sprint("e", i), Append: int64(i + 1), CreatedAt: at, Event: record.Event{
		ID: fmt.Sprint("e", i), Agent: "a", CheckName: "c", NodeName: "n", IsFatal: true, ErrorCode: []string{e.code}, GeneratedTimestamp: at,
		EntitiesImpacted: []record.Entity{{EntityType: "GPU_UUID", EntityValue: e.gpu}}, ProcessingStrategy: record.Process,
	}}
	if e.healthy {
		r.Event.IsHealthy, r.Event.IsFatal, r.Event.ErrorCode = true, false, nil
	}
	if e.persist {
		r.Event.ProcessingStrategy = record.PersistOnly
	}
	return pattern.NewFact(r)
}

// way of judging a history.
type way int

const (
	inOrder way = iota
	allAtOnce
	anyOrder // with a clock that makes nothing too old
)

// stories judges the events in an order of arrival and lists what is derived as
// expect does.
func stories(t *rapid.T, rules []rule.Rule, h []ev, arrival []int, how way) (out []string) {
	w, ids := pattern.NewWindow(rules), map[string]bool{}
	judge := func(from, now time.Time) {
		for _, f := range w.Judge(from, now) {
			if f.Reason != pattern.Matched {
				continue
			}
			e := f.Event(record.Process)
			if ids[e.ID] {
				t.Fatalf("id of %s %s given twice", e.CheckName, f.Subject)
			}
			ids[e.ID] = true
			w.Add(pattern.NewFact(record.Record{ID: e.ID, Event: e}))
			subject := strings.NewReplacer("gpu=GPU_UUID:", "", " code=", "", "code=", "").Replace(f.Subject)
			out = append(out, fmt.Sprintf("%s %s@%d", e.CheckName, subject, int(f.Trigger.At.Sub(start).Minutes())))
		}
	}
	for _, i := range arrival {
		f, now := h[i].fact(i), start
		from, changed := w.Add(f)
		if how == inOrder {
			now = f.At
		}
		if changed && how != allAtOnce {
			judge(from, now)
		}
		if how == inOrder {
			w.Prune(now)
		}
	}
	if how == allAtOnce {
		judge(time.Time{}, start)
	}
	return out
}

// TestAgainstTheNaiveEvaluator: over random histories the rules find what
// counting by hand finds, one by one as the events come and all at once; in any
// other order of arrival they find something about the same subjects, once.
func TestAgainstTheNaiveEvaluator(t *testing.T) {
	rules, err := rule.Parse("naive", []byte(naiveRules))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		h := history(t)
		order := make([]int, len(h))
		for i := range order {
			order[i] = i
		}
		want := expect(rules, h)
		for _, how := range []way{inOrder, allAtOnce} {
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
	})
}
