package clearing

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func TestRelevant(t *testing.T) {
	node := func(annotations map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	asked := node(map[string]string{nodemark.ClearPrefix + "r1": "alice: replaced", "other": "x"})
	for name, tt := range map[string]struct {
		before, after *corev1.Node
		want          bool
	}{
		"new":             {node(nil), asked, true},
		"seen first":      {nil, asked, true},
		"unchanged":       {asked, asked, false},
		"another reason":  {asked, node(map[string]string{nodemark.ClearPrefix + "r1": "alice: no, the cable"}), true},
		"taken away":      {asked, node(nil), false},
		"deleted":         {asked, nil, false},
		"nobody's":        {node(nil), node(map[string]string{nodemark.ClearPrefix + "r1": "replaced"}), false},
		"no record":       {node(nil), node(map[string]string{nodemark.ClearPrefix: "alice: replaced"}), false},
		"something other": {node(nil), node(map[string]string{"other": "y"}), false},
	} {
		if got := Relevant(tt.before, tt.after); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestRefused(t *testing.T) {
	machine := record.NodeIdentity{UID: "u2", ProviderID: "aws:///i-2"}
	for name, tt := range map[string]struct {
		change func(*record.Record)
		want   string
	}{
		"a fault":         {func(*record.Record) {}, ""},
		"another node":    {func(r *record.Record) { r.Event.NodeName = "m" }, "about node m"},
		"a recovery":      {func(r *record.Record) { r.Event.IsHealthy = true }, "no fault"},
		"persist only":    {func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }, "PERSIST_ONLY"},
		"another machine": {func(r *record.Record) { r.Node = record.NodeIdentity{UID: "u1", ProviderID: "aws:///i-1"} }, "another machine"},
	} {
		r := record.Record{ID: "r1", Node: machine, Event: record.Event{NodeName: "n", ProcessingStrategy: record.Process}}
		tt.change(&r)
		if got := Refused(r, "n", machine); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
