package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
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
		if got := RequestsClearing(tt.before, tt.after); got != tt.want {
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
		"a recovery":      {func(r *record.Record) { r.Event.IsHealthy = true }, "not a fault"},
		"persist only":    {func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }, "PERSIST_ONLY"},
		"another machine": {func(r *record.Record) { r.Node = record.NodeIdentity{UID: "u1", ProviderID: "aws:///i-1"} }, "an earlier machine"},
	} {
		r := record.Record{ID: "r1", Node: machine, Event: record.Event{NodeName: "n", ProcessingStrategy: record.Process}}
		tt.change(&r)
		if got := RefusedClearing(r, "n", machine); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// nothing is a store that has no record, and counts who is asked for.
type nothing map[string]bool

func (n nothing) Get(_ context.Context, id string) (record.Record, error) {
	n[id] = true
	return record.Record{}, store.ErrNotFound
}

func (nothing) Append(context.Context, []record.Record) ([]store.AppendResult, error) {
	return nil, errors.New("a recovery of a record that is not there")
}

// TestClearingsOfANodeAreBounded: anyone who may annotate a Node does not have thousands of
// records read at each of its changes.
func TestClearingsOfANodeAreBounded(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{}}}
	for i := range 5 * mostClearings {
		node.Annotations[fmt.Sprint(nodemark.ClearPrefix, "r", i)] = "ann: replaced"
	}
	asked := nothing{}
	r := &Clearing{Records: asked, Client: fake.NewClientset(node), Log: slog.New(slog.DiscardHandler)}
	if err := r.Handle(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	named := 0
	for id := range asked { // each by its own id, and by others that follow from it
		if strings.HasPrefix(id, "r") {
			named++
		}
	}
	if named != mostClearings || len(asked) > 3*mostClearings {
		t.Errorf("%d of the records are read, with %d ids", named, len(asked))
	}
}
