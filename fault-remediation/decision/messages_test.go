package decision

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func TestDidSomething(t *testing.T) {
	run := func(steps ...record.RepairStep) func(a *record.Attempt) {
		return func(a *record.Attempt) { a.Chain, a.Steps = "chain", steps }
	}
	for name, x := range map[string]struct {
		change func(a *record.Attempt)
		want   bool
	}{
		"an object":                        {func(*record.Attempt) {}, true},
		"an object with steps":             {func(a *record.Attempt) { a.Steps = []record.RepairStep{{Name: "one"}} }, true},
		"nothing was sent":                 {func(a *record.Attempt) { a.SignalSent = false }, false},
		"nothing was created":              {func(a *record.Attempt) { a.UID = "" }, false},
		"a run whose step made its object": {run(record.RepairStep{Name: "one"}, record.RepairStep{Name: "two", UID: "x"}), true},
		"a run whose steps made none":      {run(record.RepairStep{Name: "one"}), false},
		"a run without steps":              {run(), true},
		"a run that works":                 {func(a *record.Attempt) { run(record.RepairStep{Name: "one"})(a); a.FinishedAt = nil }, true},
	} {
		a := failure()
		if x.change(&a); didSomething(a) != x.want {
			t.Errorf("%s: %t", name, !x.want)
		}
	}
}

// TestRepeatOffenderNoteNamesSession: while a fault of it is open, and kept.
func TestRepeatOffenderNoteNamesSession(t *testing.T) {
	for name, x := range map[string]struct {
		change func(r *record.Record)
		want   string
	}{
		"kept":               {func(*record.Record) {}, "s"},
		"of another session": {func(r *record.Record) { r.Status.Session = "t" }, ""},
		"over":               {func(r *record.Record) { r.Status.Faults[0].ClearedTimestamp = &noon }, ""},
		"not kept":           {func(r *record.Record) { r.Status.Remediation.Reason = string(Lost) }, ""},
	} {
		d, r := base(t), with(faultOf("r"))
		r.Status.Remediation.Outcome, r.Status.Remediation.Reason = record.OutcomeNeedsHuman, record.RepeatOffender
		x.change(&r)
		d.v.Records = []record.Record{r}
		if note, ok := nodemark.ParseRepeatOffender(d.repeatOffenderNote(nil)); !ok || note.RequiresRelease != x.want {
			t.Errorf("%s: %+v", name, note)
		}
	}
}

func TestAnnotationShowsWhatExists(t *testing.T) {
	reserved := failure()
	reserved.UID, reserved.FinishedAt = "", nil
	r := with(faultOf("r"), reserved)
	for name, x := range map[string]struct {
		creating *Creation
		want     bool
	}{
		"reserved":             {nil, false},
		"about to be created":  {&Creation{Attempt: record.Attempt{Name: "o"}}, true},
		"another one is to be": {&Creation{Attempt: record.Attempt{Name: "p"}}, false},
	} {
		shown := nodemark.ParseRepairs(Annotation([]record.Record{r}, "s", x.creating)).EquivalenceGroups
		if _, got := shown["restart"]; got != x.want {
			t.Errorf("%s: %+v", name, shown)
		}
	}
}

func TestCallsAreBounded(t *testing.T) {
	var records []record.Record
	for i := range maxCalls + 3 {
		r := with(faultOf(strconv.Itoa(i)))
		r.Status.Remediation.Outcome = record.OutcomeNeedsHuman
		switch i {
		case 0:
			r.Status.Faults[0].ClearedTimestamp = &noon
		case 1:
			r.Status.Session = "t"
		}
		records = append(records, r)
	}
	got := calls(records, "s")
	if len(got) != maxCalls || got[0].Record != "2" {
		t.Errorf("%d calls, %+v", len(got), got)
	}
}

func TestBootLimit(t *testing.T) {
	configs := action.Default()
	c := configs[string(record.ActionRestartVM)]
	c.UnknownTimeout = new(7 * time.Minute)
	configs[string(record.ActionRestartVM)] = c
	c.UnknownTimeout = new(time.Duration(0))
	configs[string(record.ActionRestartBM)] = c
	configs[string(record.ActionComponentReset)] = action.Config{Chain: "chain", EquivalenceGroup: "reset", UnknownTimeout: new(7 * time.Minute)}
	repairs, err := action.Compile(configs, action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[record.Action]time.Duration{
		record.ActionRestartVM: 7 * time.Minute, record.ActionRestartBM: action.DefaultUnknownTimeout,
		record.ActionComponentReset: action.DefaultUnknownTimeout, "NOBODYS": action.DefaultUnknownTimeout,
	} {
		if got := (decision{repairs: repairs}).bootLimit(record.Attempt{Action: name}); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestActionText(t *testing.T) {
	for _, want := range []record.Action{record.ActionRestartVM, record.ActionNone} {
		r := faultOf("r")
		if r.Event.RecommendedAction = want; actionText(r) != want {
			t.Errorf("%q, want %q", actionText(r), want)
		}
	}
}

// TestUnrepairedReportsOnce: of the writes of a step, those are reported that are the first
// to record that no repair is asked for.
func TestUnrepairedReportsOnce(t *testing.T) {
	unrepaired := func(why Reason) record.Status {
		return record.Status{Remediation: &record.Remediation{Waiting: &record.Wait{Reason: string(why)}}}
	}
	step := Step{Writes: []Write{
		{ID: "first", Status: unrepaired(NoRepair)}, {ID: "again", Status: unrepaired(NoRepair)}, {ID: "other", Status: unrepaired(WaitDrain)},
		{ID: "silent", Status: record.Status{Remediation: &record.Remediation{}}}, {ID: "changed", Status: unrepaired(NoRepair)},
	}}
	records := []record.Record{
		{ID: "first"}, {ID: "again", Status: unrepaired(NoRepair)}, {ID: "other", Status: unrepaired(NoRepair)}, {ID: "changed", Status: unrepaired(WaitDrain)},
	}
	var reported []string
	for _, w := range Unrepaired(step, records) {
		reported = append(reported, w.ID)
	}
	if got := fmt.Sprint(reported); got != "[first changed]" {
		t.Errorf("told %s", got)
	}
}

func TestListed(t *testing.T) {
	names := strings.Fields("a b c d e f g h i j k l")
	for n, want := range map[int]string{0: "", 2: "a, b", 10: "a, b, c, d, e, f, g, h, i, j", 12: "a, b, c, d, e, f, g, h, i, j and 2 more"} {
		if got := listed(names[:n]); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestAlikeWaits(t *testing.T) {
	wait := func(change func(w *record.Wait)) *record.Wait {
		w := &record.Wait{Reason: "r", Message: "m", Since: noon, Until: new(noon)}
		change(w)
		return w
	}
	reported := wait(func(*record.Wait) {})
	for name, x := range map[string]struct {
		other *record.Wait
		want  bool
	}{
		"the same":               {wait(func(*record.Wait) {}), true},
		"another begin":          {wait(func(w *record.Wait) { w.Since = noon.Add(-time.Hour) }), true},
		"an end a second later":  {wait(func(w *record.Wait) { w.Until = new(noon.Add(time.Second)) }), true},
		"an end some time later": {wait(func(w *record.Wait) { w.Until = new(noon.Add(time.Second + 1)) }), false},
		"without an end":         {wait(func(w *record.Wait) { w.Until = nil }), false},
		"another reason":         {wait(func(w *record.Wait) { w.Reason = "s" }), false},
		"another message":        {wait(func(w *record.Wait) { w.Message = "n" }), false},
		"none":                   {nil, false},
	} {
		if got := alike(reported, x.other); got != x.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestWaitStartIsPreserved: a wait goes on with its reason; another claim is another wait.
func TestWaitStartIsPreserved(t *testing.T) {
	began := noon.Add(-time.Hour)
	for name, x := range map[string]struct {
		now, before Reason
		message     string
		goesOn      bool
	}{
		"the same":                 {WaitDrain, WaitDrain, "m", true},
		"the same, other words":    {WaitDrain, WaitDrain, "n", true},
		"another reason":           {WaitDrain, WaitSymptoms, "m", false},
		"the same claim":           {WaitClaim, WaitClaim, "m", true},
		"another claim":            {WaitClaim, WaitClaim, "n", false},
		"a claim, behind a reason": {WaitClaim, WaitDrain, "m", false},
	} {
		w := base(t).wait(Step{Reason: x.now, Message: "m"}, &record.Wait{Reason: string(x.before), Message: x.message, Since: began})
		if w.Since.Equal(began) != x.goesOn {
			t.Errorf("%s: since %s", name, w.Since)
		}
	}
}

// TestEndedWaitIsNotReported: a fault that is over gets no new wait, and the wait that it has
// is removed.
func TestEndedWaitIsNotReported(t *testing.T) {
	d, r := base(t), faultOf("r")
	r.Status.Faults[0].ClearedTimestamp = &noon
	d.v.Records = []record.Record{r}
	if s := d.voiced(Step{Reason: WaitDrain, Waits: "r"}); len(s.Writes) > 0 {
		t.Errorf("told %+v", s.Writes)
	}
	r = with(r)
	r.Status.Remediation.Waiting = &record.Wait{Reason: string(WaitDrain)}
	d.v.Records = []record.Record{r}
	if s := d.voiced(Step{Reason: Nothing}); len(s.Writes) != 1 || s.Writes[0].Status.Remediation.Waiting != nil {
		t.Errorf("not taken back: %+v", s)
	}
}
