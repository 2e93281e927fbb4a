package conditions

import (
	"encoding/json"
	"fmt"
	"slices"
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
			// Told again in the same order, as after a crash, it says the same.
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
	s.Told(want)
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

func fatalNot(i int) record.Record {
	return change(fatal(1, fmt.Sprintf("GPU-%d", i), "63"), func(r *record.Record) { r.Event.IsFatal = false })
}

func TestSetIsBounded(t *testing.T) {
	var s Set
	full := change(fatal(1, "", "79"), func(r *record.Record) {
		for i := range MaxFaults {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: "GPU", EntityValue: fmt.Sprint(i)})
		}
	})
	if got := s.Fold(full); got != Raised || s.Faults() != MaxFaults {
		t.Fatalf("%q, %d faults", got, s.Faults())
	}
	var over Set
	full.Event.EntitiesImpacted = append(full.Event.EntitiesImpacted, record.Entity{EntityType: "GPU", EntityValue: "one more"})
	if got := over.Fold(full); got != Overflowed || over.Faults() != MaxFaults {
		t.Fatalf("one too many at once: %q, %d faults", got, over.Faults())
	}
	if got := s.Fold(fatal(2, "GPU-1", "79")); got != Overflowed {
		t.Fatalf("one more: %q", got)
	}
	s = Set{}
	for i := range MaxChecks + 1 {
		r := change(healthy(1, "", ""), func(r *record.Record) { r.Event.CheckName = fmt.Sprint("check", i) })
		if got := s.Fold(r); (got == Overflowed) != (i == MaxChecks) {
			t.Fatalf("check %d: %q", i, got)
		}
	}
}

// TestSetIsBoundedInBytes fills the set with the largest faults and recoveries
// that the door lets in.
func TestSetIsBoundedInBytes(t *testing.T) {
	const largest = 256 << 10 // admission.MaxFaultBytes
	var s Set
	units := func(i int) func(*record.Record) {
		return func(r *record.Record) {
			r.Event.CheckName = fmt.Sprint("check", i%MaxChecks)
			for u := range 240 {
				r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted,
					record.Entity{EntityType: "NVLINK", EntityValue: fmt.Sprintf("%01000d", u)})
			}
		}
	}
	overflowed := 0
	for i := range 48 {
		if s.Fold(change(fatal(uint64(i)+1, fmt.Sprint("GPU-", i), "79"), units(i))) == Overflowed {
			overflowed++
		}
		s.Fold(change(healthy(uint64(i)+1, fmt.Sprint("other-", i), ""), units(0)))
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if limit := MaxBytes + largest + maxRecoveryBytes; len(b) > limit || overflowed == 0 {
		t.Errorf("%d bytes, want at most %d; %d faults had no room", len(b), limit, overflowed)
	}
	for name, c := range s.Checks {
		if len(c.Recoveries) > maxRecoveries {
			t.Errorf("%s: %d recoveries", name, len(c.Recoveries))
		}
	}
}

// faultOf has a fault take so many bytes of a set; recoveryOf, a recovery.
func faultOf(r record.Record, bytes int) record.Record {
	f := Fault{fault.Entries(r.Event)[0], trimFault(r)}
	r.Node.ProviderID = strings.Repeat("x", bytes-f.size())
	return r
}

func recoveryOf(r record.Record, bytes int) record.Record {
	trimmed := trimRecovery(r)
	r.Node.ProviderID = strings.Repeat("x", bytes-size(&trimmed))
	return r
}

// TestWhatFitsExactlyHasRoom: at the bounds, and one beyond.
func TestWhatFitsExactlyHasRoom(t *testing.T) {
	gpu := func(i int) string { return fmt.Sprintf("GPU-%04d", i) }
	var s Set
	const faults = MaxBytes / maxFirst
	for i := range faults - 1 {
		if got := s.Fold(faultOf(fatal(uint64(i)+1, gpu(i), "79"), maxFirst)); got != Raised {
			t.Fatalf("fault %d: %q", i, got)
		}
	}
	two := change(fatal(faults, gpu(faults), "79"), func(r *record.Record) { r.Event.ErrorCode = []string{"79", "80"} })
	if got := s.Fold(faultOf(two, maxFirst)); got != Overflowed || s.Faults() != faults {
		t.Errorf("two where one has room: %q, %d faults", got, s.Faults())
	}
	other := func(check string, bytes int) record.Record {
		return faultOf(change(fatal(1, "GPU-1", "79"), func(r *record.Record) { r.Event.CheckName = check }), bytes)
	}
	if got := s.Fold(other("large", maxFirst)); got != Raised {
		t.Errorf("the first fault of a check: %q", got)
	}
	if got := s.Fold(other("larger", maxFirst+1)); got != Overflowed {
		t.Errorf("one byte more: %q", got)
	}
	for _, tc := range []struct{ bytes, want int }{{maxRecoveryBytes / 8, 8}, {maxRecoveryBytes/8 + 1, 7}, {1200, 54}, {1000, maxRecoveries}} {
		var s Set
		for i := range maxRecoveries + 1 {
			s.Fold(recoveryOf(change(healthy(uint64(i)+1, "", ""), func(r *record.Record) { r.Event.ErrorCode = []string{gpu(i)} }), tc.bytes))
		}
		have := s.Checks[xid].Recoveries
		if len(have) != tc.want || have[len(have)-1].Seq != maxRecoveries+1 {
			t.Errorf("of recoveries of %d bytes %d are remembered, want the last %d", tc.bytes, len(have), tc.want)
		}
	}
}

// TestSizeIsWhatTheFileTakes: what an event says in addition counts as much as it takes.
func TestSizeIsWhatTheFileTakes(t *testing.T) {
	long := strings.Repeat("x", 1000)
	base := change(fatal(1, "GPU-1", "79"), func(r *record.Record) {
		r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: "NVLINK", EntityValue: "1"})
	})
	base = run(base, "y x")
	measure := func(v any) int {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	for name, add := range map[string]func(*record.Record){
		"id":      func(r *record.Record) { r.ID += long },
		"epoch":   func(r *record.Record) { r.SeqEpoch += long },
		"machine": func(r *record.Record) { r.Node.ProviderID += long },
		"agent":   func(r *record.Record) { r.Event.Agent += long },
		"class":   func(r *record.Record) { r.Event.ComponentClass += long },
		"check":   func(r *record.Record) { r.Event.CheckName += long },
		"node":    func(r *record.Record) { r.Event.NodeName += long },
		"message": func(r *record.Record) { r.Event.Message = long[:maxText] },
		"runs":    func(r *record.Record) { *r = run(*r, long) },
		"codes":   func(r *record.Record) { r.Event.ErrorCode = []string{"79", long, long} },
		"entities": func(r *record.Record) {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: long, EntityValue: long})
		},
		"device": func(r *record.Record) {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: "PCI", EntityValue: long})
		},
		"unit": func(r *record.Record) {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: "NVLINK", EntityValue: long})
		},
	} {
		t.Run(name, func(t *testing.T) {
			more := change(base, add)
			was, is := trimRecovery(base), trimRecovery(more)
			if got, want := size(&is)-size(&was), measure(is)-measure(was); got != want {
				t.Errorf("a recovery counts %d bytes, its file takes %d", got, want)
			}
			f, g := Fault{fault.Entries(base.Event)[0], trimFault(base)}, Fault{fault.Entries(more.Event)[0], trimFault(more)}
			if got, want := g.size()-f.size(), measure(g)-measure(f); got != want {
				t.Errorf("a fault counts %d bytes, its file takes %d", got, want)
			}
		})
	}
}

// A check looks faulty, or has no condition, but never healthy for want of room.
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

// TestHistoryOfAFormerShape: a record that was judged when each of its names was
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

func TestMessageIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name       string
		faults     int
		text       string
		whole, cut bool
	}{
		{"short texts", 5, "short", true, false},
		{"long texts are compacted", 5, strings.Repeat("long ", 100), true, false},
		{"too many", 50, "short", false, true},
		{"one of many runes", 1, strings.Repeat("\u00e9", 2000), true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Set
			for i := range tc.faults {
				s.Fold(change(fatal(uint64(i)+1, fmt.Sprintf("GPU-%d", i), "79"), func(r *record.Record) { r.Event.Message = tc.text }))
			}
			m := s.Desired()[0].Message
			entries := strings.Count(m, " Recommended Action=RESTART_BM;")
			if len(m) > MaxMessage || strings.HasSuffix(m, cutMark) != tc.cut || (entries == tc.faults) != tc.whole || entries == 0 {
				t.Errorf("%d bytes, %d entries: %q", len(m), entries, m)
			}
			if strings.ToValidUTF8(m, "") != m {
				t.Errorf("not UTF-8: %q", m)
			}
		})
	}
}

// TestMessageFills: texts that fit exactly are whole, and those that do not fill the room.
func TestMessageFills(t *testing.T) {
	message := func(texts ...string) string {
		var s Set
		for i, text := range texts {
			s.Fold(change(fatal(uint64(i)+1, fmt.Sprint("GPU-", i), "79"), func(r *record.Record) { r.Event.Message = text }))
		}
		return s.Desired()[0].Message
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	frame := len(message("x")) - 1 // of one fault
	most := MaxMessage - 2*frame
	if got := message(x(most/2), x(most-most/2)); len(got) != MaxMessage {
		t.Errorf("two that fit exactly take %d bytes", len(got))
	}
	if got := message(x(most/2), x(most-most/2+1)); len(got) != 2*(frame+compactText) {
		t.Errorf("two with a byte too much take %d bytes", len(got))
	}
	// The last of the short texts leaves just the room for the mark, or a byte less.
	frame = len(message("")) + 1 // a space before the text
	for _, tc := range []struct{ bytes, faults int }{{MaxMessage, 9}, {MaxMessage + 1, 8}} {
		left := tc.bytes - len(cutMark) - 9*frame
		texts := append(slices.Repeat([]string{x(left / 9)}, 8), x(left-left/9*8))
		got := message(append(texts, x(maxText))...)
		if faults := strings.Count(got, ";"); faults != tc.faults || !strings.HasSuffix(got, ";"+cutMark) || len(got) > MaxMessage {
			t.Errorf("%d faults in %d bytes, want %d", faults, len(got), tc.faults)
		}
	}
	var s Set
	s.Fold(fatal(1, x(2000), "79"))
	if got := s.Desired()[0].Message; len(got) != MaxMessage || !strings.HasSuffix(got, "x;"+cutMark) {
		t.Errorf("one that is too long takes %d bytes: %q", len(got), got)
	}
}

func TestNoticeIsBounded(t *testing.T) {
	notice := func(name int) string {
		return NoticeOf(fatal(1, strings.Repeat("x", name), "").Event).Message
	}
	most := 1 + MaxMessage - len(notice(1))
	if got := notice(most); len(got) != MaxMessage || !strings.HasSuffix(got, ";") {
		t.Errorf("what fits exactly is %d bytes: %q", len(got), got)
	}
	if got := notice(most + 1); len(got) != MaxMessage || !strings.HasSuffix(got, cutMark) {
		t.Errorf("a byte more is %d bytes: %q", len(got), got)
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
