package record_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

func TestNeedsNewer(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*record.Record)
		want string
	}{
		"a blank record":      {func(*record.Record) {}, ""},
		"this version":        {func(r *record.Record) { r.MinVersion = record.Version }, ""},
		"a newer version":     {func(r *record.Record) { r.MinVersion = record.Version + 1 }, "record version 2 or newer"},
		"no version":          {func(r *record.Record) { r.MinVersion = -1 }, ""},
		"a known verdict":     {func(r *record.Record) { r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Held} }, ""},
		"an unknown verdict":  {func(r *record.Record) { r.Status.QuarantineVerdict = &record.Verdict{Reason: "New"} }, `"New" of quarantineverdict`},
		"a known outcome":     {func(r *record.Record) { r.Status.Remediation = &record.Remediation{Outcome: record.OutcomeCovered} }, ""},
		"an unknown outcome":  {func(r *record.Record) { r.Status.Remediation = &record.Remediation{Outcome: "New"} }, `"New" of remediation`},
		"an unknown drain":    {func(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = "New" }, `"New" of userpodsevictionstatus`},
		"an unknown state":    {func(r *record.Record) { r.Status.NodeQuarantined = "New" }, `"New" of nodequarantined`},
		"an unknown action":   {func(r *record.Record) { r.Event.RecommendedAction = "NEWER_ACTION" }, ""}, // a person's
		"an unknown strategy": {func(r *record.Record) { r.Event.ProcessingStrategy = "NEWER" }, ""},       // does not act
	} {
		var r record.Record
		tt.edit(&r)
		if got := record.NeedsNewer(r); got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestEveryMoveIsBetweenKnownValues: a value that may be written is one that this version
// knows when it reads it.
func TestEveryMoveIsBetweenKnownValues(t *testing.T) {
	for _, m := range record.Transitions() {
		for _, value := range []string{m.From, m.To} {
			var r record.Record
			switch m.Field {
			case "nodequarantined":
				r.Status.NodeQuarantined = record.Quarantine(value)
			case "userpodsevictionstatus":
				r.Status.UserPodsEvictionStatus.Status = record.Eviction(value)
			case "quarantineverdict":
				r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Reason(value)}
			default:
				t.Fatalf("a field that is not known here: %s", m.Field)
			}
			if why := record.NeedsNewer(r); why != "" {
				t.Errorf("%s: %s", m.Field, why)
			}
		}
	}
}

// TestAnUnknownVerdictFinishesNothing, so that no version gives it an expiry.
func TestAnUnknownVerdictFinishesNothing(t *testing.T) {
	for _, healthy := range []bool{false, true} {
		r := record.Record{Event: record.Event{ProcessingStrategy: record.Process, IsHealthy: healthy}}
		r.Status.QuarantineVerdict = &record.Verdict{Reason: "New"}
		if record.Finished(r) || record.Open(r) || record.Pending(r) {
			t.Errorf("healthy %v: finished %v, open %v, pending %v", healthy, record.Finished(r), record.Open(r), record.Pending(r))
		}
		r.Status.QuarantineVerdict.Reason = record.NoRuleMatched
		if !record.Finished(r) {
			t.Errorf("healthy %v: a verdict that finishes does not", healthy)
		}
	}
}

// TestWirePreservesUnknownFields: a field of a newer publisher goes through an event
// and back, and an action without a number keeps its name.
func TestWirePreservesUnknownFields(t *testing.T) {
	newer := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "x")
	wire, err := proto.Marshal(&protos.HealthEvent{Agent: "a", RecommendedAction: protos.RecommendedAction_NONE})
	if err != nil {
		t.Fatal(err)
	}
	var p protos.HealthEvent
	if err := proto.Unmarshal(append(wire, newer...), &p); err != nil {
		t.Fatal(err)
	}
	e := record.FromProto(&p)
	doc, err := record.AppendJSON(nil, record.Record{Event: e})
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	back := record.ToProto(r.Event)
	if got := back.ProtoReflect().GetUnknown(); !slices.Equal([]byte(got), newer) || back.GetRecommendedAction() != protos.RecommendedAction_NONE {
		t.Errorf("the wire has %q, %v", got, back)
	}
	named := record.ToProto(record.Event{RecommendedAction: "NEWER_ACTION", Metadata: map[string]string{"a": "b"}})
	want := map[string]string{"a": "b", record.MetadataUnknownAction: "NEWER_ACTION"}
	if diff := cmp.Diff(want, named.GetMetadata()); diff != "" || named.GetRecommendedAction() != protos.RecommendedAction_UNKNOWN {
		t.Errorf("%v (-want +got):\n%s", named.GetRecommendedAction(), diff)
	}
	if blank := record.ToProto(record.Event{}); blank.GetRecommendedAction() != protos.RecommendedAction_UNKNOWN || blank.GetMetadata() != nil {
		t.Errorf("no action is %v", blank)
	}
}

// TestFurtherFieldsAreLeftOut: of a field that a later version adds, records without it
// show nothing, so that the documents of both versions are the same.
func TestFurtherFieldsAreLeftOut(t *testing.T) {
	const first = 18 // fields of the first format, by which an event is known again
	event := reflect.TypeFor[record.Event]()
	for i := first; i < event.NumField(); i++ {
		if tag := event.Field(i).Tag.Get("json"); tag != "-" && !strings.HasSuffix(tag, ",omitempty") {
			t.Errorf("%s is written when it is empty: `json:%q`", event.Field(i).Name, tag)
		}
	}
}
