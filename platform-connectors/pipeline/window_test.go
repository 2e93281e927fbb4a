package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// copyOf is the nth event, accepted so long after noon.
func copyOf(n int, after time.Duration, change ...func(*record.Event)) record.Record {
	e := xid()
	for _, c := range change {
		c(&e)
	}
	return record.Record{ID: fmt.Sprint(n), CreatedAt: noon.Add(after), Event: e}
}

func TestWindow(t *testing.T) {
	with := func(change func(*record.Event)) record.Record { return copyOf(2, time.Second, change) }
	tests := map[string]struct {
		between []record.Record // after the first copy
		second  record.Record
		of      string
	}{
		"a repeat":           {nil, copyOf(2, time.Second), "1"},
		"with other words":   {nil, with(func(e *record.Event) { e.Message = "fell off again" }), "1"},
		"in another order":   {nil, with(func(e *record.Event) { slices.Reverse(e.EntitiesImpacted) }), "1"},
		"a repeated repeat":  {[]record.Record{copyOf(5, 2*time.Second)}, copyOf(2, 3*time.Second), "1"},
		"just in the window": {nil, copyOf(2, 3*time.Minute-1), "1"},
		"at the same moment": {nil, copyOf(2, 0), "1"},
		"out of the window":  {nil, copyOf(2, 3*time.Minute), ""},
		"the window does not slide": {
			[]record.Record{copyOf(5, 2*time.Minute)}, copyOf(2, 3*time.Minute), "",
		},
		"from before, after the clock was set": {nil, copyOf(2, -time.Second), ""},
		"the same record, sent again":          {nil, copyOf(1, time.Second), ""},
		"another code":                         {nil, with(func(e *record.Event) { e.ErrorCode = []string{"48"} }), ""},
		"another entity":                       {nil, with(func(e *record.Event) { e.EntitiesImpacted[0].EntityValue = "4" }), ""},
		"another node":                         {nil, with(func(e *record.Event) { e.NodeName = "gpu-8" }), ""},
		"another agent":                        {nil, with(func(e *record.Event) { e.Agent = "x" }), ""},
		"another boot":                         {nil, with(func(e *record.Event) { e.Metadata = map[string]string{"bootID": "next"} }), ""},
		"a stronger action":                    {nil, with(func(e *record.Event) { e.RecommendedAction = record.ActionReplaceVM }), ""},
		"not fatal":                            {nil, with(func(e *record.Event) { e.IsFatal = false }), ""},
		"with force":                           {nil, with(func(e *record.Event) { e.QuarantineOverrides = &record.Override{Force: true} }), ""},
		"other metadata":                       {nil, with(func(e *record.Event) { e.Metadata["chassis_serial"] = "C9" }), "1"},
		"other registers":                      {nil, with(func(e *record.Event) { e.Metadata["REG0"] = "10" }), ""},
		"PERSIST_ONLY":                         {nil, with(func(e *record.Event) { e.ProcessingStrategy = record.PersistOnly }), ""},
		"after its recovery": {
			[]record.Record{copyOf(5, 1, func(e *record.Event) { e.IsHealthy, e.ErrorCode = true, nil })}, copyOf(2, time.Second), "",
		},
		"after the recovery of something else": {
			[]record.Record{copyOf(5, 1, func(e *record.Event) { e.IsHealthy, e.ErrorCode = true, []string{"48"} })}, copyOf(2, time.Second), "1",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var w Window
			d := Default().Dedup
			for _, r := range append([]record.Record{copyOf(1, 0)}, tc.between...) {
				w.Stored(d, w.Look(d, r), r)
			}
			if got := w.Look(d, tc.second).Of; got != tc.of {
				t.Errorf("repeats %q, want %q", got, tc.of)
			}
		})
	}
}

func TestRegistersAreComparedOneByOne(t *testing.T) {
	with := func(n int, metadata ...string) record.Record {
		return copyOf(n, time.Duration(n)*time.Second, func(e *record.Event) {
			e.Metadata = map[string]string{}
			for i := 0; i < len(metadata); i += 2 {
				e.Metadata[metadata[i]] = metadata[i+1]
			}
		})
	}
	var w Window
	d := Default().Dedup
	for i, tt := range []struct {
		metadata []string
		of       string
	}{
		{[]string{"REG0", "01", "REG6", "00"}, ""},
		{[]string{"REG0", "01", "REG6", "00", "seq", "9"}, "0"},
		{[]string{"REG0", "00", "REG6", "01"}, ""},
		{[]string{"REG0", "01"}, ""},
		{nil, ""},
		{[]string{"REG6", "01", "REG0", "00"}, "2"},
	} {
		r := with(i, tt.metadata...)
		p := w.Look(d, r)
		if p.Of != tt.of {
			t.Errorf("%d, %v: repeats %q, want %q", i, tt.metadata, p.Of, tt.of)
		}
		w.Stored(d, p, r)
	}
}

func TestAnObservationNeverDemotesAFault(t *testing.T) {
	var w Window
	d := Default().Dedup
	first := copyOf(1, 0, func(e *record.Event) { e.ProcessingStrategy = record.PersistOnly })
	w.Stored(d, w.Look(d, first), first)
	if got := w.Look(d, copyOf(2, time.Second)).Of; got != "" {
		t.Errorf("a PROCESS fault repeats the PERSIST_ONLY record %s", got)
	}
}

func TestWhatIsNotStoredDemotesNothing(t *testing.T) {
	var w Window
	d := Default().Dedup
	w.Look(d, copyOf(1, 0))
	if got := w.Look(d, copyOf(2, time.Second)).Of; got != "" {
		t.Errorf("repeats %q, which nobody stored", got)
	}
}

func TestWindowIsBoundedAndForgets(t *testing.T) {
	var w Window
	d := Default().Dedup
	add := func(n int, after time.Duration) {
		r := copyOf(n, after, func(e *record.Event) { e.ErrorCode = []string{fmt.Sprint(n)} })
		w.Stored(d, w.Look(d, r), r)
	}
	for n := range maxSeen + 10 {
		add(n, 0)
	}
	if len(w.seen) != maxSeen {
		t.Errorf("%d faults are remembered", len(w.seen))
	}
	add(1_000_000, d.SuppressionWindow)
	if len(w.seen) != 1 {
		t.Errorf("%d faults are remembered after the window", len(w.seen))
	}
}

func TestOtherChecksAreLeftAlone(t *testing.T) {
	var w Window
	d := Default().Dedup
	other := func(e *record.Event) { e.CheckName = "GpuMemWatch" }
	first := copyOf(1, 0, other)
	w.Stored(d, w.Look(d, first), first)
	if p := w.Look(d, copyOf(2, 1, other)); p != (Position{}) {
		t.Errorf("%+v", p)
	}
}
