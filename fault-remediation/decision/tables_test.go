package decision

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// The tables of this file, and of messages_test.go, are of parts of a decision that golden scripts reach with few of
// their inputs. Each row changes one input of a base in which every part is as it has to be.

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// base is a decision at noon about a Node of session s under boot b2, with the default
// actions.
func base(t *testing.T) decision {
	t.Helper()
	repairs, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return decision{repairs: repairs, policy: Policy{UnrepairedAfter: time.Hour}, now: noon, v: View{
		Node: Node{Name: "n", Presence: Present, Session: "s", Marked: true, Ready: true, Identity: record.NodeIdentity{UID: "m", BootID: "b2"}},
	}}
}

// faultOf is an open, drained fault of session s.
func faultOf(id string) record.Record {
	r := record.Record{ID: id, CreatedAt: noon.Add(-time.Hour), Event: record.Event{
		ProcessingStrategy: record.Process, RecommendedAction: record.ActionRestartVM, GeneratedTimestamp: noon.Add(-time.Hour), Metadata: map[string]string{},
	}}
	r.Status.Session, r.Status.Faults = "s", []record.Fault{{Key: id}}
	r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched}
	r.Status.UserPodsEvictionStatus.Status = record.EvictionSucceeded
	return r
}

// failure is an attempt of session s at the machine under boot b1, which failed ten minutes
// ago.
func failure() record.Attempt {
	return record.Attempt{
		Ordinal: 1, Group: "restart", Action: record.ActionRestartVM, Kind: "RebootNode", Name: "o", Session: "s", Machine: "m", UID: "u",
		PriorBootID: "b1", SubmittedAt: noon.Add(-20 * time.Minute), FinishedAt: new(noon.Add(-10 * time.Minute)),
		SignalSent: true, State: string(healthrule.Unhealthy),
	}
}

func with(r record.Record, attempts ...record.Attempt) record.Record {
	r.Status.Remediation = &record.Remediation{Attempts: attempts}
	return r
}

func TestBootedLate(t *testing.T) {
	late := func(change func(r *record.Record, a *record.Attempt, d *decision)) (string, bool) {
		d, r, a := base(t), faultOf("r"), failure()
		change(&r, &a, &d)
		d.v.Records = []record.Record{with(faultOf("other"), a), r}
		return d.bootedLate(r, true)
	}
	for name, x := range map[string]struct {
		change func(r *record.Record, a *record.Attempt, d *decision)
		want   string
	}{
		"before the end of a repair":       {func(*record.Record, *record.Attempt, *decision) {}, "other"},
		"after it":                         {func(r *record.Record, _ *record.Attempt, _ *decision) { r.Event.GeneratedTimestamp = noon }, ""},
		"of another session":               {func(_ *record.Record, a *record.Attempt, _ *decision) { a.Session = "t" }, ""},
		"the maintenance succeeded":        {func(_ *record.Record, a *record.Attempt, _ *decision) { a.State = "Healthy" }, ""},
		"the machine has not booted since": {func(_ *record.Record, _ *record.Attempt, d *decision) { d.v.Node.Identity.BootID = "b1" }, ""},
	} {
		if by, ok := late(x.change); by != x.want || ok != (x.want != "") {
			t.Errorf("%s: by %q, %t", name, by, ok)
		}
	}
	d, r := base(t), faultOf("r")
	r.Event.GeneratedTimestamp = noon // of its own repair it is older in any case
	d.v.Records = []record.Record{with(r, failure())}
	if by, ok := d.bootedLate(d.v.Records[0], true); by != "r" || !ok {
		t.Errorf("its own repair: by %q, %t", by, ok)
	}
	if by, ok := d.bootedLate(d.v.Records[0], false); by != "" || ok {
		t.Errorf("a fault that no boot cures: by %q, %t", by, ok)
	}
}

func TestCreatedFor(t *testing.T) {
	a := failure()
	for name, x := range map[string]struct {
		change func(o *Object)
		want   bool
	}{
		"ours":            {func(*Object) {}, true},
		"another session": {func(o *Object) { o.Session = "t" }, false},
		"another group":   {func(o *Object) { o.Group = "reset" }, false},
		"another ordinal": {func(o *Object) { o.Ordinal = 2 }, false},
	} {
		o := Object{Session: "s", Group: "restart", Ordinal: 1}
		if x.change(&o); createdFor(a, o) != x.want {
			t.Errorf("%s: %t", name, !x.want)
		}
	}
}

// TestHinderedForTooLong: an object that the API server or the lease keeps back was never
// created, one that cannot be read may have been.
func TestHinderedForTooLong(t *testing.T) {
	for why, want := range map[Reason]string{
		CreateForbidden: StateCancelled, WaitLease: StateCancelled, KindMissing: StateLost, ReadError: StateLost,
	} {
		d, a := base(t), failure()
		a.UID, a.FinishedAt = "", nil
		r := with(faultOf("r"), a)
		r.Status.Remediation.Waiting = &record.Wait{Reason: string(why), Since: noon.Add(-2 * time.Hour)}
		d.v.Records, d.v.Object = []record.Record{r}, Object{Unread: why}
		s := d.hindered(Ref{r, 0, a})
		if len(s.Writes) != 1 || s.Writes[0].Status.Remediation.Attempts[0].State != want {
			t.Errorf("%s: %+v, want the attempt to be %s", why, s, want)
		}
	}
}

// TestReservedForAnotherSession: a name reserved for a session that is over is released as
// such, if the Node is there to show it.
func TestReservedForAnotherSession(t *testing.T) {
	for presence, over := range map[Presence]bool{Present: true, Absent: false} {
		d, a := base(t), failure()
		a.UID, a.FinishedAt, a.Session = "", nil, "t"
		r := with(faultOf("r"), a)
		d.v.Node.Presence, d.v.Records, d.v.Object = presence, []record.Record{r}, Object{Presence: Absent}
		s := d.reserved(Ref{r, 0, a})
		if strings.Contains(s.Message, "the fault or its quarantine session has ended") != over {
			t.Errorf("presence %d: %s", presence, s.Message)
		}
	}
}

func TestCovers(t *testing.T) {
	inBoot := func(boot string) func(r *record.Record) {
		return func(r *record.Record) { r.Event.Metadata[record.MetadataBootID] = boot }
	}
	past := fault.Boots{Replaced: map[string]bool{"b0": true}}
	for name, x := range map[string]struct {
		scope    string
		replaced string
		change   func(r *record.Record)
		want     bool
	}{
		"without a boot, before the symptoms":           {"", "b1", func(*record.Record) {}, true},
		"without a boot, a symptom":                     {"", "b1", func(r *record.Record) { r.Event.GeneratedTimestamp = noon.Add(-21 * time.Minute) }, false},
		"without a boot, a symptom, nothing replaced":   {"", "", func(r *record.Record) { r.Event.GeneratedTimestamp = noon.Add(-21 * time.Minute) }, false},
		"of the boot that was replaced":                 {"", "b1", inBoot("b1"), true},
		"of a boot that is not past":                    {"", "b1", inBoot("b9"), false},
		"of an earlier boot":                            {"", "b1", inBoot("b0"), true},
		"of an earlier boot, reported after the repair": {"", "b1", func(r *record.Record) { inBoot("b0")(r); r.CreatedAt = noon }, false},
		"of one entity, its boot was replaced":          {"GPU_UUID", "b1", func(r *record.Record) { inBoot("b1")(r); r.CreatedAt = noon }, true},
		"of one entity, nothing was replaced":           {"GPU_UUID", "", func(r *record.Record) { r.CreatedAt = noon }, false},
		"of one entity, older, nothing was replaced":    {"GPU_UUID", "", func(*record.Record) {}, true},
	} {
		d, r, a := base(t), faultOf("r"), failure()
		configs := action.Default()
		c := configs[string(record.ActionComponentReset)]
		c.EquivalenceGroup, c.ImpactedEntityScope = "reset", x.scope
		if x.scope != "" {
			c.Kind, c.TemplateFileName, c.Template = "GPUReset", "", "apiVersion: janitor.dgxc.nvidia.com/v1alpha1\nkind: GPUReset\nspec: {nodeName: '{{ .NodeName }}'}\n"
			r.Event.RecommendedAction, a.Action = record.ActionComponentReset, record.ActionComponentReset
		}
		configs[string(record.ActionComponentReset)] = c
		var err error
		if d.repairs, err = action.Compile(configs, action.Templates{}, nil); err != nil {
			t.Fatal(err)
		}
		d.v.Boots = past
		if x.scope != "" {
			known, _ := d.repairs.Of(a.Action)
			a.Group = known.For(r).Group
		}
		if x.change(&r); d.covers(a, x.replaced, r) != x.want {
			t.Errorf("%s: %t", name, !x.want)
		}
	}
}

func TestReplacedBoot(t *testing.T) {
	for name, x := range map[string]struct {
		change func(o *Object, n *Node, a *record.Attempt)
		want   string
	}{
		"as the object tells":            {func(*Object, *Node, *record.Attempt) {}, "b1"},
		"as the attempt knows it":        {func(o *Object, _ *Node, _ *record.Attempt) { o.PriorBoot = "" }, "b0"},
		"nobody knows the one before":    {func(o *Object, _ *Node, a *record.Attempt) { o.PriorBoot, a.PriorBootID = "", "" }, ""},
		"the same boot":                  {func(o *Object, _ *Node, _ *record.Attempt) { o.ObservedBoot = "b1" }, ""},
		"as the Node reports":            {func(o *Object, _ *Node, _ *record.Attempt) { o.ObservedBoot = "" }, "b1"},
		"the Node reports the same":      {func(o *Object, n *Node, _ *record.Attempt) { o.ObservedBoot, n.Identity.BootID = "", "b1" }, ""},
		"the Node is gone":               {func(o *Object, n *Node, _ *record.Attempt) { o.ObservedBoot, n.Presence = "", Absent }, ""},
		"the Node is of another machine": {func(o *Object, _ *Node, a *record.Attempt) { o.ObservedBoot, a.Machine = "", "another" }, ""},
		"the object knows better":        {func(_ *Object, n *Node, _ *record.Attempt) { n.Identity.BootID = "b1" }, "b1"},
	} {
		d, a := base(t), failure()
		a.PriorBootID, d.v.Object = "b0", Object{PriorBoot: "b1", ObservedBoot: "b2"}
		x.change(&d.v.Object, &d.v.Node, &a)
		if got := d.replacedBoot(a); got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

func TestSymptomUntil(t *testing.T) {
	for name, x := range map[string]struct {
		change func(r *record.Record, a *record.Attempt)
		want   time.Time
	}{
		"during a repair":           {func(*record.Record, *record.Attempt) {}, noon.Add(4 * time.Minute)},
		"long before it":            {func(r *record.Record, _ *record.Attempt) { r.Event.GeneratedTimestamp = noon.Add(-8 * time.Minute) }, time.Time{}},
		"right before it":           {func(r *record.Record, _ *record.Attempt) { r.Event.GeneratedTimestamp = noon.Add(-7 * time.Minute) }, noon.Add(4 * time.Minute)},
		"long after it":             {func(r *record.Record, _ *record.Attempt) { r.Event.GeneratedTimestamp = noon.Add(5 * time.Minute) }, time.Time{}},
		"with a boot":               {func(r *record.Record, _ *record.Attempt) { r.Event.Metadata[record.MetadataBootID] = "b1" }, time.Time{}},
		"its repair ended long ago": {func(_ *record.Record, a *record.Attempt) { a.FinishedAt = new(noon.Add(-5 * time.Minute)) }, time.Time{}},
		"its repair works":          {func(_ *record.Record, a *record.Attempt) { a.FinishedAt = nil }, time.Time{}},
		"its repair sent nothing":   {func(_ *record.Record, a *record.Attempt) { a.SignalSent = false }, time.Time{}},
		"on another machine":        {func(_ *record.Record, a *record.Attempt) { a.Machine = "another" }, time.Time{}},
	} {
		d, r, a := base(t), faultOf("r"), failure()
		r.Event.GeneratedTimestamp = noon.Add(-2 * time.Minute)
		a.SubmittedAt, a.FinishedAt, a.State = noon.Add(-5*time.Minute), new(noon.Add(-time.Minute)), string(healthrule.Healthy)
		x.change(&r, &a)
		d.v.Records = []record.Record{with(faultOf("other"), a), r}
		if got := d.symptomUntil(r); !got.Equal(x.want) {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
	d, a := base(t), failure()
	a.SubmittedAt, a.FinishedAt = noon.Add(-5*time.Minute), new(noon.Add(-time.Minute))
	r := with(faultOf("r"), a)
	r.Event.GeneratedTimestamp = noon.Add(-2 * time.Minute)
	d.v.Records = []record.Record{r}
	if got := d.symptomUntil(r); !got.IsZero() {
		t.Errorf("its own repair: %s", got)
	}
}

// TestEnded: a machine that came back late ended its repair then.
func TestEnded(t *testing.T) {
	came := noon.Add(-5 * time.Minute)
	for name, x := range map[string]struct {
		change func(n *Node, a *record.Attempt)
		late   bool
	}{
		"it came back late":         {func(*Node, *record.Attempt) {}, true},
		"it succeeded":              {func(_ *Node, a *record.Attempt) { a.State = string(healthrule.Healthy) }, false},
		"it is not Ready":           {func(n *Node, _ *record.Attempt) { n.Ready = false }, false},
		"it was Ready before":       {func(n *Node, _ *record.Attempt) { n.ReadySince = noon.Add(-time.Hour) }, false},
		"it has not booted":         {func(n *Node, _ *record.Attempt) { n.Identity.BootID = "b1" }, false},
		"it does not tell its boot": {func(n *Node, _ *record.Attempt) { n.Identity.BootID = "" }, false},
	} {
		d, a := base(t), failure()
		d.v.Node.ReadySince = came
		x.change(&d.v.Node, &a)
		want := *a.FinishedAt
		if x.late {
			want = came
		}
		if got := d.ended(a); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestAlike(t *testing.T) {
	d := base(t)
	reboot, _ := d.repairs.Of(record.ActionRestartVM)
	replace, _ := d.repairs.Of(record.ActionReplaceVM)
	for name, x := range map[string]struct {
		attempt record.Attempt
		next    action.Action
		want    bool
	}{
		"the same group":              {record.Attempt{Group: "restart"}, reboot, true},
		"the same kind":               {record.Attempt{Group: "mine", Kind: "RebootNode"}, reboot, true},
		"both restart the machine":    {record.Attempt{Group: "mine", Kind: "Cycle", Action: record.ActionRestartBM}, reboot, true},
		"neither":                     {record.Attempt{Group: "mine", Kind: "Cycle", Action: "MINE"}, reboot, false},
		"a restart and a new machine": {record.Attempt{Group: "restart", Kind: "RebootNode", Action: record.ActionRestartBM}, replace, false},
	} {
		if got := d.alike(x.attempt, x.next); got != x.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
