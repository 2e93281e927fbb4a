package coverage

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

var policy = Policy{After: 5 * time.Minute, Strategy: record.PersistOnly}

func last(healthy bool) *record.Record {
	return &record.Record{ID: "last", Event: record.Event{IsHealthy: healthy, ProcessingStrategy: record.Process}}
}

func observed() *record.Record {
	r := last(false)
	r.Event.ProcessingStrategy = record.PersistOnly
	return r
}

func TestDecide(t *testing.T) {
	long := 5 * time.Minute
	for name, tc := range map[string]struct {
		view   View
		want   Reason
		acting bool
	}{
		"no GPU":                         {View{For: long}, NoGPU, false},
		"both":                           {View{GPU: true, Publisher: true, Connector: true}, Covered, false},
		"both, recovered before":         {View{GPU: true, Publisher: true, Connector: true, Last: last(true)}, Covered, false},
		"no monitor, since a moment":     {View{GPU: true, Connector: true, For: long - 1}, Waits, false},
		"no monitor":                     {View{GPU: true, Connector: true, For: long}, Report, false},
		"no connector":                   {View{GPU: true, Publisher: true, For: long}, Report, false},
		"none":                           {View{GPU: true, For: long}, Report, false},
		"none, again":                    {View{GPU: true, For: long, Last: last(true)}, Report, false},
		"none, reported":                 {View{GPU: true, For: long, Last: last(false)}, Stands, false},
		"none, reported before a change": {View{GPU: true, For: 0, Last: last(false)}, Stands, false},
		"none, reported long ago":        {View{GPU: true, For: long, Last: observed(), Age: renewal}, Report, false},
		"none, reported lately":          {View{GPU: true, For: long, Last: observed(), Age: renewal - 1}, Stands, false},
		"none, acted upon long ago":      {View{GPU: true, For: long, Last: last(false), Age: renewal}, Stands, false},
		"none, reported for the record":  {View{GPU: true, For: long, Last: observed()}, Report, true},
		"none, acted upon":               {View{GPU: true, For: long, Last: last(false)}, Stands, true},
		"back":                           {View{GPU: true, Publisher: true, Connector: true, Last: last(false)}, Recovered, false},
		"its GPUs are gone":              {View{For: long, Last: last(false)}, Recovered, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := policy
			if tc.acting {
				policy.Strategy = record.Process
			}
			if got := Decide(tc.view, policy); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestRecord: who knows the same appends the same, and a recovery has the strategy
// of its fault.
func TestRecord(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	v := View{GPU: true, For: time.Hour, Machine: record.NodeIdentity{UID: "u"}}
	fault := Record("n", v, policy, Report, now)
	again := Record("n", v, policy, Report, now.Add(time.Minute))
	if fault.ID != again.ID || record.Content(fault) != record.Content(again) || fault.Acts() || fault.ExpireAt == nil || fault.Event.IsHealthy || fault.Event.IsFatal {
		t.Errorf("%+v, then %+v", fault, again)
	}
	v.Last = &fault
	recovery := Record("n", v, Policy{Strategy: record.Process}, Recovered, now)
	if recovery.ID == fault.ID || !recovery.Event.IsHealthy || recovery.Acts() {
		t.Errorf("%+v", recovery)
	}
	v.Last = &recovery
	if next := Record("n", v, policy, Report, now); next.ID == fault.ID || next.ID == recovery.ID {
		t.Errorf("the next fault has the id %s of one before", next.ID)
	}
}

// TestFaultNamesMissingMonitor: anyone who reads it knows which of the two to look for.
func TestFaultNamesMissingMonitor(t *testing.T) {
	for name, tc := range map[string]struct {
		view View
		want string
	}{
		"neither":      {View{GPU: true}, "no live publisher for 5m0s: neither a monitor nor the connector is Ready on the node, so faults of this node would not be reported"},
		"no monitor":   {View{GPU: true, Connector: true}, "no live publisher for 5m0s: no monitor is Ready on the node, so faults of this node would not be reported"},
		"no connector": {View{GPU: true, Publisher: true}, "no live publisher for 5m0s: the connector is not Ready on the node, so faults of this node would not be reported"},
	} {
		if got := Record("n", tc.view, policy, Report, time.Time{}).Event.Message; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestWhichNodesCountAsUncovered: from the report until the recovery, not while a
// missing pod may still come.
func TestWhichNodesCountAsUncovered(t *testing.T) {
	for reason, want := range map[Reason]bool{NoGPU: false, Covered: false, Waits: false, Report: true, Stands: true, Recovered: false} {
		if reason.Uncovered() != want {
			t.Errorf("%s: uncovered is %t, want %t", reason, !want, want)
		}
	}
}
