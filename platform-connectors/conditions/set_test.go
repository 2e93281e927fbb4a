package conditions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

const xid = "SysLogsXIDError"

// fatal is a fatal event of the XID check; seq 0 means the publisher counts nothing.
func fatal(seq uint64, gpu, code string) record.Record {
	r := record.Record{ID: fmt.Sprintf("%s/%s/%d", gpu, code, seq), Event: record.Event{
		Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: xid, NodeName: "gpu-7",
		IsFatal: true, Message: "GPU has fallen off; the bus", RecommendedAction: record.ActionRestartBM,
		ProcessingStrategy: record.Process,
	}}
	if code != "" {
		r.Event.ErrorCode = []string{code}
	}
	if gpu != "" {
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: gpu}}
	}
	if seq > 0 {
		r.Seq, r.SeqEpoch = seq, "outbox"
		r = run(r, "r1")
	}
	return r
}

func healthy(seq uint64, gpu, code string) record.Record {
	r := fatal(seq, gpu, code)
	r.Event.IsHealthy, r.Event.IsFatal, r.Event.Message = true, false, ""
	return r
}

// named is a fault of another check.
func named(check string) record.Record {
	return change(fatal(1, "", ""), func(r *record.Record) { r.Event.CheckName = check })
}

func run(r record.Record, runs string) record.Record {
	r.Event.Metadata = map[string]string{record.MetadataSeqRuns: runs}
	return r
}

func change[T any](x T, change func(*T)) T {
	change(&x)
	return x
}

func TestFold(t *testing.T) {
	tests := map[string]struct {
		events []record.Record
		want   map[string]string // message by type; the healthy text is False
		last   Change
	}{
		"a fault": {
			[]record.Record{fatal(1, "GPU-1", "79")},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Raised,
		},
		"a fault without code and entity": {
			[]record.Record{fatal(1, "", "")},
			map[string]string{xid: "GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Raised,
		},
		"two faults, one recovers": {
			[]record.Record{fatal(1, "GPU-1", "79"), fatal(2, "GPU-2", "79"), healthy(3, "GPU-1", "")},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-2 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Lowered,
		},
		"the whole check recovers": {
			[]record.Record{fatal(1, "GPU-1", "79"), fatal(2, "GPU-2", "48"), healthy(3, "", "")},
			map[string]string{xid: record.HealthyMessage}, Lowered,
		},
		"another code recovers": {
			[]record.Record{fatal(1, "GPU-1", "79"), healthy(2, "GPU-1", "48")},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Lowered,
		},
		"a healthy event alone": {
			[]record.Record{healthy(1, "GPU-1", "")}, map[string]string{xid: record.HealthyMessage}, Lowered,
		},
		"a recovery before its fault": {
			[]record.Record{healthy(2, "GPU-1", ""), fatal(1, "GPU-1", "79")}, map[string]string{xid: record.HealthyMessage}, Overtaken,
		},
		"a recovery of a lower seq does not undo": {
			[]record.Record{fatal(5, "GPU-1", "79"), healthy(4, "GPU-1", "")},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Lowered,
		},
		"the fault is renewed, a recovery between does not undo it": {
			[]record.Record{fatal(5, "GPU-1", "79"), fatal(7, "GPU-1", "79"), healthy(6, "GPU-1", "")},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Lowered,
		},
		"another epoch counts in the order of arrival": {
			[]record.Record{fatal(5, "GPU-1", "79"), change(healthy(1, "GPU-1", ""), func(r *record.Record) { r.SeqEpoch = "new" })},
			map[string]string{xid: record.HealthyMessage}, Lowered,
		},
		"a disk that was restored counts again, and what it lost overtakes nothing": {
			[]record.Record{run(healthy(7, "GPU-1", ""), "y x"), run(fatal(6, "GPU-1", "79"), "z x")},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Raised,
		},
		"a recovery of the next run before its fault": {
			[]record.Record{run(healthy(7, "GPU-1", ""), "y x"), run(fatal(6, "GPU-1", "79"), "x")},
			map[string]string{xid: record.HealthyMessage}, Overtaken,
		},
		"publishers that don't count": {
			[]record.Record{fatal(0, "GPU-1", "79"), healthy(0, "GPU-1", ""), fatal(0, "GPU-1", "48"), healthy(0, "GPU-1", ""), fatal(0, "GPU-1", "79")},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Raised,
		},
		"another agent's recovery": {
			[]record.Record{fatal(1, "GPU-1", "79"), change(healthy(2, "", ""), func(r *record.Record) { r.Event.Agent = "gpu-health-monitor" })},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Lowered,
		},
		"PERSIST_ONLY has no effect": {
			[]record.Record{
				change(fatal(1, "GPU-1", "79"), func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }),
				change(fatal(2, "GPU-1", "79"), func(r *record.Record) {
					r.Event.ProcessingStrategy, r.Event.IsFatal = record.PersistOnly, false
				}),
				change(healthy(3, "GPU-1", ""), func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }),
			},
			map[string]string{}, Unchanged,
		},
		"PERSIST_ONLY does not clear": {
			[]record.Record{
				fatal(1, "GPU-1", "79"),
				change(healthy(2, "GPU-1", ""), func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }),
			},
			map[string]string{xid: "ErrorCode:79 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;"}, Unchanged,
		},
		"a recovery that is remembered does not give way to an earlier one": {
			[]record.Record{healthy(5, "GPU-1", ""), healthy(3, "GPU-1", ""), fatal(4, "GPU-1", "79")},
			map[string]string{xid: record.HealthyMessage}, Overtaken,
		},
		"it gives way to a later one": {
			[]record.Record{healthy(3, "GPU-1", ""), healthy(5, "GPU-1", ""), fatal(4, "GPU-1", "79")},
			map[string]string{xid: record.HealthyMessage}, Overtaken,
		},
		"but not to one that speaks for something else": {
			[]record.Record{healthy(5, "GPU-1", ""), healthy(6, "GPU-2", ""), fatal(4, "GPU-1", "79")},
			map[string]string{xid: record.HealthyMessage}, Overtaken,
		},
		"the kubelet's conditions are not ours": {
			[]record.Record{
				named("Ready"), named("MemoryPressure"), named("DiskPressure"), named("PIDPressure"), named("NetworkUnavailable"),
			},
			map[string]string{}, Raised,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var s Set
			var last Change
			for _, r := range tc.events {
				last = s.Fold(r)
			}
			if last != tc.last {
				t.Errorf("last change %q, want %q", last, tc.last)
			}
			check(t, &s, tc.want)
			// Folded again in the same order, as after a crash, the events have the same result.
			for _, r := range tc.events {
				s.Fold(r)
			}
			check(t, &s, tc.want)
			if len(s.Notices) > 0 {
				t.Errorf("notices %v", s.Notices)
			}
			for _, c := range s.Checks {
				scopes := map[string]bool{}
				for _, r := range c.Recoveries {
					scopes[scope(r)] = true
				}
				if len(scopes) != len(c.Recoveries) {
					t.Errorf("%d recoveries are remembered, of %d scopes", len(c.Recoveries), len(scopes))
				}
			}
		})
	}
}

// check compares the conditions of a set that went through its file.
func check(t *testing.T, s *Set, want map[string]string) {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var stored Set
	if err := json.Unmarshal(b, &stored); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range stored.Desired() {
		got[string(c.Type)] = c.Message
		status, reason := corev1.ConditionTrue, xid+"IsNotHealthy"
		if c.Message == record.HealthyMessage {
			status, reason = corev1.ConditionFalse, xid+"IsHealthy"
		}
		if c.Status != status || c.Reason != reason {
			t.Errorf("condition %s: status %s, reason %s with message %q", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestNotices(t *testing.T) {
	var s Set
	minor := change(fatal(1, "GPU-1", "63"), func(r *record.Record) { r.Event.IsFatal = false })
	if got := s.Fold(minor); got != Noticed {
		t.Errorf("first: %q", got)
	}
	if got := s.Fold(minor); got != Unchanged {
		t.Errorf("the same again: %q", got)
	}
	want := []Notice{{
		"syslog-health-monitor", "SysLogsXIDErrorIsNotHealthy",
		"ErrorCode:63 GPU_UUID:GPU-1 GPU has fallen off. the bus Recommended Action=RESTART_BM;",
	}}
	if diff := cmp.Diff(want, s.Notices); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(s.Desired()) != 0 {
		t.Error("a fault that is not fatal made a condition")
	}
	s.RemoveReported(want)
	if len(s.Notices) != 0 {
		t.Error("told notices are still there")
	}
	for i := range MaxNotices + 1 {
		if got := s.Fold(fatalNot(i)); (got == Overflowed) != (i == MaxNotices) {
			t.Errorf("notice %d: %q", i, got)
		}
	}
	if len(s.Notices) != MaxNotices || !strings.Contains(s.Notices[0].Message, "GPU-1 ") {
		t.Errorf("%d notices, the first %q", len(s.Notices), s.Notices[0].Message)
	}
}

// A check looks faulty, or has no condition, but never healthy for want of capacity.
func TestFullSetShowsNoHealthyCheck(t *testing.T) {
	var s Set
	s.Fold(change(fatal(1, "", "79"), func(r *record.Record) {
		for i := range MaxFaults {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: "GPU", EntityValue: fmt.Sprint(i)})
		}
	}))
	other := func(name, text string) func(*record.Record) {
		return func(r *record.Record) {
			r.Event.CheckName = name
			r.Event.ErrorCode = []string{text}
		}
	}
	small, large := other("Small", "1"), other("Large", strings.Repeat("1", maxFirst))
	s.Fold(change(healthy(1, "", ""), small))
	s.Fold(change(healthy(1, "", ""), large))
	if got := s.Fold(change(fatal(2, "GPU-1", ""), small)); got != Raised {
		t.Errorf("the first fault of a check: %q", got)
	}
	if got := s.Fold(change(fatal(3, "GPU-2", ""), small)); got != Overflowed {
		t.Errorf("the second: %q", got)
	}
	if got := s.Fold(change(fatal(2, "GPU-1", ""), large)); got != Overflowed {
		t.Errorf("a large one: %q", got)
	}
	for _, c := range s.Desired() {
		if c.Status != corev1.ConditionTrue {
			t.Errorf("%s is %s", c.Type, c.Status)
		}
	}
}

// TestHistoryOfAFormerShape: a record that was evaluated when each of its names was
// a fault of its own stands until all of them are cleared.
func TestHistoryOfAFormerShape(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	prefix := "syslog-health-monitor|GPU|SysLogsXIDError|gpu-7|"
	for name, tc := range map[string]struct {
		first, second *time.Time
		want          int
	}{"one of two": {&at, nil, 1}, "both": {&at, &at, 0}, "none": {nil, nil, 1}} {
		t.Run(name, func(t *testing.T) {
			var s Set
			s.FoldStored(change(fatal(1, "", "5"), func(r *record.Record) {
				r.Event.EntitiesImpacted = []record.Entity{{EntityType: "NIC", EntityValue: "mlx5_0"}, {EntityType: "NICPort", EntityValue: "1"}}
				r.Status.Faults = []record.Fault{
					{Key: prefix + "NIC:mlx5_0||5", ClearedTimestamp: tc.first}, {Key: prefix + "NICPort:1||5", ClearedTimestamp: tc.second},
				}
			}), record.NodeIdentity{})
			if got := s.Faults(); got != tc.want {
				t.Errorf("%d faults stand, want %d", got, tc.want)
			}
		})
	}
}

func TestUnpairedNames(t *testing.T) {
	set := func(names ...string) *Set {
		var c Check
		for _, n := range names {
			c.Faults = append(c.Faults, Fault{fault.Entry{Names: []string{n}, Code: "5"}, record.Record{ID: "r"}})
		}
		return &Set{Checks: map[string]*Check{xid: &c}}
	}
	for _, tc := range []struct {
		set  *Set
		want bool
	}{
		{&Set{}, false}, {set("NIC:mlx5_0"), false}, {set("NIC:mlx5_0", "NIC:mlx5_1"), false},
		{set("NIC:mlx5_0", "NICPort:1"), true}, {set("NIC:mlx5_0", "NIC:mlx5_1", "Switch:a"), true},
	} {
		if got := tc.set.UnpairedNames(); got != tc.want {
			t.Errorf("%v, want %v", got, tc.want)
		}
	}
}

func TestChanges(t *testing.T) {
	then := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	now := metav1.NewTime(then.Add(time.Hour))
	cond := func(status corev1.ConditionStatus, message string, beat, moved metav1.Time) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: xid, Status: status, Reason: "r", Message: message, LastHeartbeatTime: beat, LastTransitionTime: moved,
		}
	}
	var zero metav1.Time
	foreign := corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue}
	tests := map[string]struct{ have, desired, want []corev1.NodeCondition }{
		"missing": {
			[]corev1.NodeCondition{foreign},
			[]corev1.NodeCondition{cond("True", "m", zero, zero)},
			[]corev1.NodeCondition{cond("True", "m", now, now)},
		},
		"the same": {
			[]corev1.NodeCondition{cond("True", "m", then, then)},
			[]corev1.NodeCondition{cond("True", "m", zero, zero)}, nil,
		},
		"another message": {
			[]corev1.NodeCondition{cond("True", "m", then, then)},
			[]corev1.NodeCondition{cond("True", "n", zero, zero)},
			[]corev1.NodeCondition{cond("True", "n", now, then)},
		},
		"another reason": {
			[]corev1.NodeCondition{change(cond("True", "m", then, then), func(c *corev1.NodeCondition) { c.Reason = "q" })},
			[]corev1.NodeCondition{cond("True", "m", zero, zero)},
			[]corev1.NodeCondition{cond("True", "m", now, then)},
		},
		"since nobody knows when": {
			[]corev1.NodeCondition{cond("True", "m", then, zero)},
			[]corev1.NodeCondition{cond("True", "n", zero, zero)},
			[]corev1.NodeCondition{cond("True", "n", now, now)},
		},
		"another status": {
			[]corev1.NodeCondition{cond("True", "m", then, then)},
			[]corev1.NodeCondition{cond("False", "m", zero, zero)},
			[]corev1.NodeCondition{cond("False", "m", now, now)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Changes(tc.have, tc.desired, now.Time)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaultyKeepsOnlyFaults(t *testing.T) {
	var s Set
	s.Fold(fatal(1, "GPU-1", "79"))
	s.Fold(change(healthy(2, "", ""), func(r *record.Record) { r.Event.CheckName = "Other" }))
	got := Faulty(s.Desired())
	if len(got) != 1 || got[0].Type != xid {
		t.Errorf("%v", got)
	}
}
