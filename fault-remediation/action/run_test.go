package action_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestARunOfAChain: what a run receives about the fault, whatever is in its texts.
func TestARunOfAChain(t *testing.T) {
	p, err := compile(t, "[remediationActions.\"RESTART_VM\"]\nchain = 'reboot-and-validate'\nequivalenceGroup = 'restart'\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := p.Of("RESTART_VM")
	r := record.Record{ID: "r1", Event: record.Event{
		NodeName: "gpu-1", Agent: "syslog", CheckName: "SysLogsXIDError", ComponentClass: "GPU", RecommendedAction: record.ActionRestartVM,
		ErrorCode: []string{"79"}, EntitiesImpacted: []record.Entity{{EntityType: "PCI", EntityValue: "0000:3b:00"}},
		Message: "a: b\n- \u2028 \"nodeName: gpu-2\"", Metadata: map[string]string{"boot_id": "b1"}, GeneratedTimestamp: time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC),
	}}
	at := record.Attempt{Name: "gpu-1-x", Session: "s1", Group: "restart", Ordinal: 2}
	o, err := a.Render(r, at)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"nodeName": "gpu-1", "chain": "reboot-and-validate", "fault": map[string]any{
		"record": "r1", "session": "s1", "action": "RESTART_VM", "agent": "syslog", "checkName": "SysLogsXIDError", "componentClass": "GPU",
		"errorCode": []any{"79"}, "entitiesImpacted": []any{map[string]any{"entityType": "PCI", "entityValue": "0000:3b:00"}},
		"message": r.Event.Message, "metadata": map[string]any{"boot_id": "b1"}, "generatedTimestamp": "2026-03-01T12:00:00Z",
	}}
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if o.GetKind() != "RepairRun" || o.GetName() != "gpu-1-x" || a.UnknownTimeout != 24*time.Hour || a.Rule.SingleConditionType != "Succeeded" {
		t.Errorf("%s %s, %+v", o.GetKind(), o.GetName(), a)
	}
	// An event at every bound of the ingest endpoint leaves space for the trace of its repair.
	for range 1024 {
		r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: strings.Repeat("t", 512), EntityValue: strings.Repeat("v", 512)})
		r.Event.ErrorCode = append(r.Event.ErrorCode, strings.Repeat("c", 512))
		r.Event.Metadata[strings.Repeat("k", 300)+string(rune('a'+len(r.Event.Metadata)%26))+strings.Repeat("k", len(r.Event.Metadata))] = strings.Repeat("v", 4096)
	}
	r.Event.Message = strings.Repeat("ü", 16<<10)
	if o, err = a.Render(r, at); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o.Object)
	if err != nil || len(text) > 160<<10 {
		t.Errorf("a run of %d bytes, %v", len(text), err)
	}
}

// TestRunMessageIsTruncated: a text is passed on whole up to its bound, and of a longer one
// the beginning; metadata of a longer key is left out.
func TestRunMessageIsTruncated(t *testing.T) {
	p, err := compile(t, "[remediationActions.\"RESTART_VM\"]\nchain = 'c'\nequivalenceGroup = 'restart'\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := p.Of("RESTART_VM")
	for _, tt := range []struct{ name, key, value, message string }{
		{"at its bound", strings.Repeat("k", 253), strings.Repeat("v", 512), "whole"},
		{"beyond it", strings.Repeat("k", 253), strings.Repeat("v", 513), "cut"},
		{"with a longer key", strings.Repeat("k", 254), "v", "nothing"},
	} {
		o, err := a.Render(record.Record{ID: "r1", Event: record.Event{
			NodeName: "gpu-1", RecommendedAction: record.ActionRestartVM, Metadata: map[string]string{tt.key: tt.value},
		}}, record.Attempt{Name: "n", Session: "s1", Group: "restart", Ordinal: 1})
		if err != nil {
			t.Fatal(err)
		}
		reported, there, err := unstructured.NestedString(o.Object, "spec", "fault", "metadata", tt.key)
		want := map[string]string{"whole": tt.value, "cut": tt.value[:min(len(tt.value), 512)]}[tt.message]
		if err != nil || there != (tt.message != "nothing") || reported != want {
			t.Errorf("a value %s: %d bytes of it are told, %t, %v; want %s", tt.name, len(reported), there, err, tt.message)
		}
	}
}
