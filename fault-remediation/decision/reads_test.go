package decision_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// reads is a view in which everything that Needs looks at asks for a read: a Ready Node of
// session s, with a drained fault and a name that is reserved behind a failed attempt.
func reads(change func(v *decision.View, past *record.Attempt)) decision.View {
	at := time.Unix(1, 0)
	machine := record.NodeIdentity{UID: "node-uid", BootID: "boot-1"}
	past := record.Attempt{
		UID: "u", Group: "restart", Session: "s", SignalSent: true, State: "Unhealthy", FinishedAt: &at,
		Machine: fault.Machine(machine), PriorBootID: "boot-1",
	}
	v := decision.View{
		Node:   decision.Node{Name: "n", Presence: decision.Present, Session: "s", Ready: true, Identity: machine},
		Object: decision.Object{Presence: decision.Absent},
	}
	v.Records = []record.Record{open(func(r *record.Record) { r.Status.Session = "s" })}
	change(&v, &past)
	attempts := []record.Attempt{past}
	if v.Records[0].Status.Remediation != nil {
		attempts = append(attempts, v.Records[0].Status.Remediation.Attempts...)
	}
	v.Records[0].Status.Remediation = &record.Remediation{Attempts: attempts}
	return v
}

// TestNeeds: what only some decisions depend on is read after the Node.
func TestNeeds(t *testing.T) {
	now := time.Unix(1e9, 0)
	reserved := func(v *decision.View, _ *record.Attempt) { attempted("", false)(&v.Records[0]) }
	kubelet := decision.Reads{Kubelet: true}
	for name, x := range map[string]struct {
		change func(v *decision.View, past *record.Attempt)
		want   decision.Reads
	}{
		"a failed attempt":                 {func(*decision.View, *record.Attempt) {}, kubelet},
		"a name is reserved behind it":     {reserved, decision.Reads{Kubelet: true, Pods: true}},
		"an object is under way behind it": {func(v *decision.View, _ *record.Attempt) { attempted("v", false)(&v.Records[0]) }, decision.Reads{}},
		"a name is reserved, drained just now": {func(v *decision.View, past *record.Attempt) {
			reserved(v, past)
			at := now.Add(-time.Second)
			v.Records[0].Status.DrainFinishTimestamp = &at
		}, kubelet},
		"a name is reserved, one fault is not drained": {func(v *decision.View, past *record.Attempt) {
			reserved(v, past)
			v.Records = append(v.Records, open(undrained))
		}, kubelet},
		"a name is reserved, of a fault that was repaired": {func(v *decision.View, past *record.Attempt) {
			reserved(v, past)
			yes := true
			v.Records[0].Status.FaultRemediated = &yes
		}, decision.Reads{}},
		"a name is reserved, and taken": {func(v *decision.View, past *record.Attempt) {
			reserved(v, past)
			v.Object.Presence = decision.Present
		}, kubelet},
		"the Node is gone": {func(v *decision.View, past *record.Attempt) {
			reserved(v, past)
			v.Node.Presence = decision.Absent
		}, decision.Reads{}},
		"the Node is not Ready": {func(v *decision.View, _ *record.Attempt) { v.Node.Ready = false }, decision.Reads{}},
		"the fault has ended":   {func(v *decision.View, _ *record.Attempt) { cleared(&v.Records[0]) }, decision.Reads{}},
		"the fault is of another session": {func(v *decision.View, _ *record.Attempt) {
			v.Records[0].Status.Session = "t"
		}, decision.Reads{}},
		"the attempt succeeded":             {func(_ *decision.View, past *record.Attempt) { past.State = "Healthy" }, decision.Reads{}},
		"the attempt sent nothing":          {func(_ *decision.View, past *record.Attempt) { past.SignalSent = false }, decision.Reads{}},
		"the attempt was never created":     {func(_ *decision.View, past *record.Attempt) { past.UID = "" }, decision.Reads{}},
		"the attempt was another machine's": {func(v *decision.View, _ *record.Attempt) { v.Node.Identity.UID = "another" }, decision.Reads{}},
		"the machine has booted since":      {func(v *decision.View, _ *record.Attempt) { v.Node.Identity.BootID = "boot-2" }, decision.Reads{}},
	} {
		if got := decision.Needs(reads(x.change), nil, now); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

// TestNeedsTheNode: nothing is read before the Node, and a cached one is enough for the
// first repair of its session.
func TestNeedsTheNode(t *testing.T) {
	in := func(r *record.Record) { r.Status.Session = "s" }
	marks := &nodemark.Marks{Session: "s", State: nodemark.Quarantined}
	for name, x := range map[string]struct {
		records []record.Record
		cached  *nodemark.Marks
		want    decision.Reads
	}{
		"no records":                       {nil, nil, decision.Reads{}},
		"not drained":                      {[]record.Record{open(undrained)}, nil, decision.Reads{}},
		"drained":                          {[]record.Record{open(in)}, nil, decision.Reads{Node: true}},
		"drained, a cache has the Node":    {[]record.Record{open(in)}, marks, decision.Reads{Node: true, Cached: true}},
		"repaired before, in the cache":    {[]record.Record{open(all(in, ended))}, marks, decision.Reads{Node: true}},
		"another session in the cache":     {[]record.Record{open(in)}, &nodemark.Marks{Session: "t", State: nodemark.Quarantined}, decision.Reads{Node: true}},
		"the cache has a Node without any": {[]record.Record{open(in)}, &nodemark.Marks{}, decision.Reads{Node: true}},
	} {
		v := decision.View{Records: x.records}
		if got := decision.Needs(v, x.cached, time.Unix(1e9, 0)); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}
