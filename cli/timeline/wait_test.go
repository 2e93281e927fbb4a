package timeline

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestEndOfWait: the wait of a fault for its second signal.
func TestEndOfWait(t *testing.T) {
	const first, other = "019a1b2c-3d4e-7f01-8234-000000000001", "019a1b2c-3d4e-7f01-8234-000000000002"
	event := func(id string, place int64, at time.Time, edits ...func(*record.Record)) record.Record {
		r := record.Record{ID: id, Append: place, CreatedAt: at, Event: record.Event{
			ID: id, Agent: "monitor", CheckName: "check", NodeName: "n", ErrorCode: []string{"79"}, ProcessingStrategy: record.Process, Metadata: map[string]string{},
		}}
		for _, edit := range edits {
			edit(&r)
		}
		return r
	}
	waits := func(r *record.Record) {
		r.Event.ProcessingStrategy, r.Event.Metadata[record.MetadataStrategyReason] = record.PersistOnly, record.Unconfirmed
		r.Event.Metadata[record.MetadataWaitsFor], r.Event.Metadata[record.MetadataWaitsWithin] = "a second signal", "10m"
	}
	forever := func(r *record.Record) { delete(r.Event.Metadata, record.MetadataWaitsWithin) }
	healthy := func(r *record.Record) { r.Event.IsHealthy, r.Event.ErrorCode = true, nil }
	observed := func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }
	agent := func(r *record.Record) { r.Event.Agent = "another" }
	check := func(r *record.Record) { r.Event.CheckName = "another" }
	code := func(r *record.Record) { r.Event.ErrorCode = []string{"48"} }
	confirms := func(of string, n int64, after time.Duration, edits ...func(*record.Record)) record.Record {
		id, err := record.ConfirmationID(of)
		if err != nil {
			t.Fatal(err)
		}
		x := event(id, n, minute(30).Add(after), edits...)
		x.Event.Metadata[record.MetadataConfirms] = of
		return x
	}
	confirmed := func(of string) string { return confirms(of, 0, 0).ID }
	fault := event(first, 5, minute(30), waits)
	for _, tt := range []struct {
		name                 string
		fault, came          record.Record
		confirmed, recovered string
	}{
		{"a recovery", fault, event("h", 6, minute(31), healthy), "", "h"},
		{"a recovery before it", fault, event("h", 4, minute(29), healthy), "", ""},
		{"a recovery for the record only", fault, event("h", 6, minute(31), healthy, observed), "", ""},
		{"a recovery of another check", fault, event("h", 6, minute(31), healthy, check), "", ""},
		{"the same fault, acted upon", fault, event("f", 6, minute(31)), "", ""},
		{"its confirmation", fault, confirms(first, 6, time.Hour), confirmed(first), ""},
		{"the confirmation of the same, counted with it, as late as it waits", fault, confirms(other, 6, 10*time.Minute), confirmed(other), ""},
		{"the confirmation of the same, as much before", fault, confirms(other, 4, -10*time.Minute), confirmed(other), ""},
		{"the confirmation of the same, later than it waits", fault, confirms(other, 6, 10*time.Minute+1), "", ""},
		{"the confirmation of another agent's", fault, confirms(other, 6, 0, agent), "", ""},
		{"the confirmation of another check's", fault, confirms(other, 6, 0, check), "", ""},
		{"the confirmation of another code", fault, confirms(other, 6, 0, code), "", ""},
		{"its confirmation, without a term", event(first, 5, minute(30), waits, forever), confirms(first, 6, time.Hour), confirmed(first), ""},
	} {
		w := waitOf(tt.fault, []record.Record{tt.fault, tt.came})
		if w == nil || w.Confirmed != tt.confirmed || w.Recovered != tt.recovered || w.Confirms != "" {
			t.Errorf("%s: %+v, want it confirmed by %q, recovered by %q", tt.name, w, tt.confirmed, tt.recovered)
		}
	}
	if w := waitOf(fault, nil); !w.Until.Equal(minute(40)) {
		t.Errorf("it waits until %v", w.Until)
	}
	if w := waitOf(event(first, 5, minute(30), waits, forever), nil); !w.Until.IsZero() {
		t.Errorf("without a term it waits until %v", w.Until)
	}
	if w := waitOf(event("f", 5, minute(30)), nil); w != nil {
		t.Errorf("a fault that is acted upon waits: %+v", w)
	}
}
