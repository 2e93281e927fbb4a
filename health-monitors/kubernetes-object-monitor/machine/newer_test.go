package machine

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// newer is a state as a newer version writes it.
const newer = `{"version":1,"epoch":"e","last":2,"newer":{"x":[1,"y"]},
"open":[{"policy":"P","type":"v1/Node","object":"o1","node":"n1","class":"Node","strategy":"PROCESS","since":"2026"},
{"policy":"P","type":"v1/Node","object":"o2","node":"n2","class":"Node","strategy":"PROCESS","since":"2027"}],
"waiting":[{"agent":"a","recommendedAction":"NEWER_ACTION","processingStrategy":"NEWER","newer":{"x":1},"metadata":{"seq":"1"}},
{"agent":"b","recommendedAction":"RESTART_VM","isFatal":true,"metadata":{"seq":"2"}}]}`

func unpacked(t *testing.T, data []byte) (out map[string]any) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheStateOfANewerVersion is read, and written again with what is not known of it; a
// fault that ends takes along what is its own.
func TestTheStateOfANewerVersion(t *testing.T) {
	tracker, err := Decode(packed(t, newer))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tracker.Observe(EvaluationResult{Key: Key{"P", "v1/Node", "o1"}, Observation: Unmatched}, v7); err != nil {
		t.Fatal(err)
	}
	data, err := tracker.Copy().Encode()
	if err != nil {
		t.Fatal(err)
	}
	got := unpacked(t, data)
	want := map[string]any{
		"newer": map[string]any{"x": []any{1.0, "y"}},
		"open":  []any{map[string]any{"policy": "P", "type": "v1/Node", "object": "o2", "node": "n2", "class": "Node", "strategy": "PROCESS", "since": "2027"}},
	}
	for name, value := range want {
		if diff := cmp.Diff(value, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAWaitingEventOfANewerVersion is sent: its action is a person's, never none.
func TestAWaitingEventOfANewerVersion(t *testing.T) {
	tracker, err := Decode(packed(t, newer))
	if err != nil {
		t.Fatal(err)
	}
	first, second := tracker.Waiting()[0].Event, tracker.Waiting()[1].Event
	if first.GetRecommendedAction() != protos.RecommendedAction_UNKNOWN || first.GetMetadata()[record.MetadataUnknownAction] != "NEWER_ACTION" ||
		first.GetProcessingStrategy() != protos.ProcessingStrategy_PERSIST_ONLY || first.GetMetadata()[record.MetadataUnknownStrategy] != "NEWER" ||
		first.GetAgent() != "a" || first.GetMetadata()["seq"] != "1" {
		t.Errorf("the event is %v", first)
	}
	if second.GetRecommendedAction() != protos.RecommendedAction_RESTART_VM || !second.GetIsFatal() {
		t.Errorf("another event is %v", second)
	}
}
