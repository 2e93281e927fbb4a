package conditions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

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
// that the connector lets in.
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

// TestExactFitIsStored: at the bounds, and one beyond.
func TestExactFitIsStored(t *testing.T) {
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

// TestSizeEqualsFileSize: additional content of an event counts with the size it takes.
func TestSizeEqualsFileSize(t *testing.T) {
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
