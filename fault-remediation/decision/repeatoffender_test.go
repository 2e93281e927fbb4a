package decision_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestCountedRepairs: one repair is certain; whether the other attempt makes it
// two, which mark the Node.
func TestCountedRepairs(t *testing.T) {
	at := time.Unix(1000, 0)
	run := func(change func(*record.Attempt)) record.Attempt {
		a := record.Attempt{Session: "s2", Chain: "c", UID: "u", SignalSent: true, FinishedAt: &at, SubmittedAt: at}
		change(&a)
		return a
	}
	made, none := record.RepairStep{State: "Failed", UID: "x"}, record.RepairStep{State: "Failed"}
	m1, recreated := record.NodeIdentity{UID: "n1", ProviderID: "m1"}, record.NodeIdentity{UID: "n0", ProviderID: "m1"}
	tests := map[string]struct {
		attempt        record.Attempt
		machine        record.NodeIdentity
		repeatOffender bool
	}{
		"finished":                       {run(func(a *record.Attempt) { a.Chain = "" }), m1, true},
		"of the machine's former Node":   {run(func(a *record.Attempt) { a.Chain = "" }), recreated, true},
		"of another machine":             {run(func(a *record.Attempt) { a.Chain = "" }), record.NodeIdentity{UID: "n1", ProviderID: "m2"}, false},
		"of the same session":            {run(func(a *record.Attempt) { a.Session = "s1" }), m1, false},
		"under way":                      {run(func(a *record.Attempt) { a.FinishedAt = nil }), m1, true},
		"not sent":                       {run(func(a *record.Attempt) { a.SignalSent = false }), m1, false},
		"not known to exist":             {run(func(a *record.Attempt) { a.UID, a.FinishedAt = "", nil }), m1, false},
		"a run that made an object":      {run(func(a *record.Attempt) { a.Steps = []record.RepairStep{none, made} }), m1, true},
		"a run that made none":           {run(func(a *record.Attempt) { a.Steps = []record.RepairStep{none, none} }), m1, false},
		"a run of which nothing is told": {run(func(*record.Attempt) {}), m1, true},
	}
	repairs, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := decision.View{Node: decision.Node{Name: "n", Presence: decision.Present, Identity: m1}}
			for i, a := range []record.Attempt{{Session: "s1", UID: "u", SignalSent: true, FinishedAt: &at, SubmittedAt: at}, tt.attempt} {
				r := open(all(ended, cleared))
				r.ID, r.Node = fmt.Sprint("r", i), []record.NodeIdentity{m1, tt.machine}[i]
				r.Status.Remediation.Attempts = []record.Attempt{a}
				v.Records = append(v.Records, r)
			}
			s := decision.Next(v, repairs, decision.Policy{RepeatOffender: decision.RepeatOffenderPolicy{Repairs: 2, Window: time.Hour}}, at.Add(time.Minute))
			if got := s.RepeatOffender != nil; got != tt.repeatOffender {
				t.Errorf("lemon %v (%+v), want %v", got, s.RepeatOffender, tt.repeatOffender)
			}
		})
	}
}

// TestALongListOfRepairsIsCut: the annotation names the newest.
func TestALongListOfRepairsIsCut(t *testing.T) {
	at, m1 := time.Unix(1000, 0), record.NodeIdentity{ProviderID: "m1"}
	v := decision.View{Node: decision.Node{Name: "n", Presence: decision.Present, Identity: m1}}
	for i := range nodemark.MaxCountedRepairs + 3 {
		r := open(all(ended, cleared))
		when := at.Add(time.Duration(i) * time.Second)
		r.ID, r.Node = fmt.Sprint("r", i), m1
		r.Status.Remediation.Attempts = []record.Attempt{{Session: fmt.Sprint("s", i), UID: "u", SignalSent: true, SubmittedAt: when, FinishedAt: &when}}
		v.Records = append(v.Records, r)
	}
	s := decision.Next(v, action.Policy{}, decision.Policy{RepeatOffender: decision.RepeatOffenderPolicy{Repairs: nodemark.MaxCountedRepairs, Window: time.Hour}}, at.Add(time.Minute))
	if s.RepeatOffender == nil {
		t.Fatal("no lemon")
	}
	note, _ := nodemark.ParseRepeatOffender(s.RepeatOffender.Note)
	if n := len(note.Repairs); n != nodemark.MaxCountedRepairs || note.Repairs[n-1].Session != "s12" || note.Repairs[0].Session != "s3" {
		t.Errorf("%d repairs: %+v", n, note.Repairs)
	}
}
