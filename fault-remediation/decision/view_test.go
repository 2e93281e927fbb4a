package decision_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// open is a drained open fault; change makes it something else.
func open(change func(*record.Record)) record.Record {
	r := record.Record{ID: "r", Event: record.Event{ProcessingStrategy: record.Process, RecommendedAction: record.ActionRestartVM}}
	r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched}
	r.Status.Faults = []record.Fault{{Key: "k"}}
	r.Status.UserPodsEvictionStatus.Status = record.EvictionSucceeded
	change(&r)
	return r
}

func cleared(r *record.Record) {
	at := time.Unix(1, 0)
	r.Status.Faults[0].ClearedTimestamp = &at
}

func attempted(uid string, finished bool) func(*record.Record) {
	return func(r *record.Record) {
		a := record.Attempt{UID: uid, Group: "restart", Name: "o"}
		if finished {
			at := time.Unix(1, 0)
			a.FinishedAt = &at
		}
		r.Status.Remediation = &record.Remediation{Attempts: []record.Attempt{a}}
	}
}

func ended(r *record.Record) {
	attempted("u", true)(r)
	yes := true
	r.Status.Remediation.Outcome, r.Status.FaultRemediated = record.OutcomeSucceeded, &yes
}

func all(changes ...func(*record.Record)) func(*record.Record) {
	return func(r *record.Record) {
		for _, c := range changes {
			c(r)
		}
	}
}

func undrained(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = record.EvictionInProgress }

func TestMayCreateAndUnsettled(t *testing.T) {
	tests := map[string]struct {
		change              func(*record.Record)
		mayCreate, unsettle bool
	}{
		"drained":               {func(*record.Record) {}, false, true},
		"not drained":           {undrained, false, false},
		"cleared":               {cleared, false, false},
		"name reserved":         {attempted("", false), true, true},
		"under way":             {attempted("u", false), false, true},
		"failed":                {attempted("u", true), false, true},
		"repaired":              {ended, false, true},
		"repaired and cleared":  {all(ended, cleared), false, false},
		"under way and cleared": {all(attempted("u", false), cleared), false, true},
		"failed and cleared":    {all(attempted("u", true), cleared), false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := open(tt.change)
			v := decision.View{Records: []record.Record{r}, Node: decision.Node{Presence: decision.Present}, Object: decision.Object{Presence: decision.Absent}}
			if got := decision.MayCreate(v); got != tt.mayCreate {
				t.Errorf("MayCreate = %v, want %v", got, tt.mayCreate)
			}
			if got := decision.Unsettled(r); got != tt.unsettle {
				t.Errorf("Unsettled = %v, want %v", got, tt.unsettle)
			}
		})
	}
}

func TestCurrentTakesTheEarliest(t *testing.T) {
	at := func(id string, submitted int64) record.Record {
		return open(func(r *record.Record) {
			attempted("u-"+id, false)(r)
			r.ID = id
			r.Status.Remediation.Attempts[0].SubmittedAt = time.Unix(submitted, 0)
		})
	}
	cur, ok := decision.Current([]record.Record{at("late", 2), at("early", 1)})
	if !ok || cur.Record.ID != "early" {
		t.Errorf("Current = %s %v, want early", cur.Record.ID, ok)
	}
	if _, ok := decision.Current([]record.Record{open(ended)}); ok {
		t.Error("a finished attempt is current")
	}
}

// TestMayCreateReportsBlockers: pods are not worth reading for a Node or
// beside an object that lets nothing be created.
func TestMayCreateReportsBlockers(t *testing.T) {
	reserved := []record.Record{open(attempted("", false))}
	for name, v := range map[string]decision.View{
		"node gone":       {Node: decision.Node{Presence: decision.Absent}, Object: decision.Object{Presence: decision.Absent}},
		"node not read":   {Object: decision.Object{Presence: decision.Absent}},
		"object there":    {Node: decision.Node{Presence: decision.Present}, Object: decision.Object{Presence: decision.Present}},
		"object not read": {Node: decision.Node{Presence: decision.Present}},
	} {
		if v.Records = reserved; decision.MayCreate(v) {
			t.Errorf("%s: MayCreate", name)
		}
	}
}

// TestRefusedCreation: what the API server never accepts is closed as unsent, and
// left to a person.
func TestRefusedCreation(t *testing.T) {
	v := decision.View{
		Node:    decision.Node{Name: "n", Presence: decision.Present, Marked: true, Identity: record.NodeIdentity{UID: "1"}},
		Records: []record.Record{open(attempted("", false))},
		Object:  decision.Object{Presence: decision.Absent, Refused: "spec.nodeName: Required value"},
	}
	s := decision.Next(v, action.Policy{}, decision.Policy{}, time.Unix(100, 0))
	if s.Reason != decision.CreateRefused || len(s.Writes) != 1 || !strings.Contains(s.Message, v.Object.Refused) {
		t.Fatalf("Next = %+v", s)
	}
	after := s.Writes[0].Status
	if a := after.Remediation.Attempts[0]; a.SignalSent || a.FinishedAt == nil || record.Remediated(after) != "false" {
		t.Errorf("status %+v", after)
	}
	if v.Records[0].Status.Remediation.Attempts[0].FinishedAt != nil {
		t.Error("the view was changed")
	}
}

// TestUnknownIsNotAbsent: the zero object is unread, never absent.
func TestUnknownIsNotAbsent(t *testing.T) {
	repairs, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*record.Record){"reserved": attempted("", false), "created": attempted("u", false)} {
		v := decision.View{
			Node:    decision.Node{Name: "n", Presence: decision.Present, Marked: true, Identity: record.NodeIdentity{UID: "1"}},
			Records: []record.Record{open(change)}, Boots: fault.Boots{},
		}
		s := decision.Next(v, repairs, decision.Policy{RecoveryWithin: time.Hour}, time.Unix(1, 0))
		if len(s.Writes) == 1 { // the record begins to report that it waits
			reported := s.Writes[0].Status
			if rem := reported.Remediation; rem.Waiting == nil || rem.Waiting.Reason != string(decision.ReadError) || rem.Outcome != "" || rem.Attempts[0].FinishedAt != nil {
				t.Errorf("%s: the record says %+v", name, reported.Remediation)
			}
			v.Records[0].Status = reported
			s = decision.Next(v, repairs, decision.Policy{RecoveryWithin: time.Hour}, time.Unix(1, 0))
		}
		if s.Reason != decision.ReadError || len(s.Writes) > 0 || s.Create != nil || s.After == 0 {
			t.Errorf("%s: step %+v, want to wait for a read", name, s)
		}
	}
}

func TestUndrainedWaitsForTheDrainAlone(t *testing.T) {
	repairs, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}

	fresh := open(func(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = record.EvictionUnset })
	at := time.Now()
	for name, tt := range map[string]struct {
		edit func(*record.Record)
		want bool
	}{
		"undrained": {func(*record.Record) {}, true},
		"draining":  {func(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = record.EvictionInProgress }, true},
		"drained":   {func(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = record.AlreadyDrained }, false},
		"cleared":   {func(r *record.Record) { r.Status.Faults = []record.Fault{{Key: "k", ClearedTimestamp: &at}} }, false},
		"repaired":  {func(r *record.Record) { r.Status.Remediation = &record.Remediation{} }, false},
	} {
		r := fresh
		tt.edit(&r)
		records := []record.Record{fresh, r}
		if decision.NeedsNode(records) == tt.want {
			t.Errorf("%s: NeedsNode = %v", name, !tt.want)
		}
		// Nothing else is known, and nothing else has to be.
		s := decision.Next(decision.View{Node: decision.Node{Name: "n"}, Records: records}, repairs, decision.Policy{}, at)
		if tt.want != (s.Reason == decision.WaitDrain) || !s.OnlyWaits() && tt.want {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := decision.Next(decision.View{}, repairs, decision.Policy{}, at); decision.NeedsNode(nil) || s.Reason != decision.Nothing || s.After > 0 {
		t.Errorf("without records there is nothing to wait for: %+v", s)
	}
}

// TestDrainedJustNow: only the end of a drain that moved, or looked for, pods of this
// session a moment ago stands for a look of one's own.
func TestDrainedJustNow(t *testing.T) {
	now := time.Unix(1000, 0)
	ended := func(ago time.Duration, more ...func(*record.Record)) record.Record {
		at := now.Add(-ago)
		return open(all(append(more, func(r *record.Record) { r.Status.Session, r.Status.DrainFinishTimestamp = "s", &at })...))
	}
	for name, tt := range map[string]struct {
		record record.Record
		want   bool
	}{
		"a moment ago":        {ended(1999 * time.Millisecond), true},
		"by a clock ahead":    {ended(-1999 * time.Millisecond), true},
		"two seconds ago":     {ended(2 * time.Second), false},
		"by a clock gone mad": {ended(-2 * time.Second), false},
		"without a time":      {open(func(r *record.Record) { r.Status.Session = "s" }), false},
		"cleared":             {ended(0, cleared), false},
		"with its session":    {ended(0, func(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = record.AlreadyDrained }), false},
	} {
		v := decision.View{Records: []record.Record{tt.record}, Node: decision.Node{Session: "s"}}
		if got := decision.DrainedJustNow(v, now); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
		if v.Node.Session = "other"; decision.DrainedJustNow(v, now) {
			t.Errorf("%s: of another session", name)
		}
	}
}

// TestFirstOfSession: a cached Node is enough only where the first thing that is written
// is its mark.
func TestFirstOfSession(t *testing.T) {
	node := func(change func(*nodemark.Marks)) nodemark.Marks {
		m := nodemark.Marks{Session: "s", State: nodemark.Quarantined}
		change(&m)
		return m
	}
	in := func(r *record.Record) { r.Status.Session = "s" }
	for name, tt := range map[string]struct {
		record func(*record.Record)
		marks  nodemark.Marks
		want   bool
	}{
		"in quarantine":    {in, node(func(*nodemark.Marks) {}), true},
		"drained":          {in, node(func(m *nodemark.Marks) { m.State = nodemark.DrainSucceeded }), true},
		"in draining":      {in, node(func(m *nodemark.Marks) { m.State = nodemark.Draining }), false},
		"in repair":        {in, node(func(m *nodemark.Marks) { m.State = nodemark.Remediating }), false},
		"no Node":          {func(*record.Record) {}, nodemark.Marks{}, false},
		"no session":       {func(*record.Record) {}, node(func(m *nodemark.Marks) { m.Session = "" }), false},
		"another session":  {in, node(func(m *nodemark.Marks) { m.Session = "t" }), false},
		"claimed":          {in, node(func(m *nodemark.Marks) { m.Claim = "u" }), false},
		"unknown faults":   {in, node(func(m *nodemark.Marks) { m.Unknown = []string{"f"} }), false},
		"released":         {in, node(func(m *nodemark.Marks) { m.Released = nodemark.ByUncordon }), false},
		"opted out":        {in, node(func(m *nodemark.Marks) { m.OptedOut = true }), false},
		"a cleared fault":  {all(in, cleared), node(func(*nodemark.Marks) {}), false},
		"a repair, begun":  {all(in, attempted("", false)), node(func(*nodemark.Marks) {}), false},
		"a repair, ended":  {all(in, ended), node(func(*nodemark.Marks) {}), false},
		"a fault too many": {func(*record.Record) {}, node(func(*nodemark.Marks) {}), false},
	} {
		if got := decision.FirstOfSession([]record.Record{open(in), open(tt.record)}, tt.marks); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
