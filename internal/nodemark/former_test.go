package nodemark_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestFormerKeysAreRead: a former label or annotation counts where the present one is
// missing.
func TestFormerKeysAreRead(t *testing.T) {
	const label, note, anyone = nodemark.FormerRepeatOffenderLabel, nodemark.FormerRepeatOffenderAnnotation, nodemark.FormerReleaseOnAnyUncordonAnnotation
	for name, tt := range map[string]struct {
		labels, annotations map[string]string
		mark                nodemark.RepeatOffenderMark
		anyone              bool
	}{
		"former":            {map[string]string{label: "true"}, map[string]string{note: "{}", anyone: "True"}, nodemark.RepeatOffenderMark{Label: true, Note: "{}", Former: true}, true},
		"former label":      {map[string]string{label: "true"}, nil, nodemark.RepeatOffenderMark{Label: true, Former: true}, false},
		"label taken off":   {nil, map[string]string{note: "{}"}, nodemark.RepeatOffenderMark{Note: "{}", Former: true}, false},
		"another value":     {map[string]string{label: "maybe"}, nil, nodemark.RepeatOffenderMark{}, false},
		"present wins":      {map[string]string{label: "true", nodemark.RepeatOffenderLabel: "maybe"}, map[string]string{note: "old", nodemark.RepeatOffenderAnnotation: "{}"}, nodemark.RepeatOffenderMark{Note: "{}", Former: true}, false},
		"present":           {map[string]string{nodemark.RepeatOffenderLabel: "true"}, map[string]string{nodemark.AnyoneReleasesAnnotation: "True"}, nodemark.RepeatOffenderMark{Label: true}, true},
		"of no former name": {nil, nil, nodemark.RepeatOffenderMark{}, false},
	} {
		got := nodemark.Read(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels, Annotations: tt.annotations}})
		if got.RepeatOffender != tt.mark || got.AnyoneReleases != tt.anyone {
			t.Errorf("%s: %+v, anyone %t", name, got.RepeatOffender, got.AnyoneReleases)
		}
	}
}

// TestFormerKeysAreRemoved with the present ones: by who writes these, by who removes
// them, by the end of a release, and by an uninstallation.
func TestFormerKeysAreRemoved(t *testing.T) {
	mark := func(m nodemark.RepeatOffenderMark) func(*corev1.Node) {
		return func(n *corev1.Node) {
			nodemark.SetRepeatOffender(n, m)
			nodemark.EndRelease(n)
		}
	}
	for name, tt := range map[string]struct {
		do   func(*corev1.Node)
		want string
	}{
		"written": {mark(nodemark.RepeatOffenderMark{Label: true, Note: "{}"}), fmt.Sprint(map[string]string{nodemark.RepeatOffenderLabel: "true"}, map[string]string{nodemark.RepeatOffenderAnnotation: "{}"})},
		"removed": {mark(nodemark.RepeatOffenderMark{}), "map[] map[]"},
		"erased":  {nodemark.Erase, "map[] map[]"},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{nodemark.FormerRepeatOffenderLabel: "true"},
			Annotations: map[string]string{nodemark.FormerRepeatOffenderAnnotation: "{}", nodemark.FormerReleaseOnAnyUncordonAnnotation: "True"},
		}}
		tt.do(node)
		if diff := cmp.Diff(tt.want, fmt.Sprint(node.Labels, node.Annotations)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFormerRepairsAreRead: calls under the former key of the annotation's JSON, with
// former reasons.
func TestFormerRepairsAreRead(t *testing.T) {
	for text, want := range map[string][]nodemark.Call{
		`{"equivalenceGroups":{},"needsHuman":[{"record":"r1","reason":"HumanAction"}]}`:                                  {{Record: "r1", Reason: "ManualActionRequired"}},
		`{"equivalenceGroups":{},"manualInterventions":[{"record":"r1","reason":"Lost"}]}`:                                {{Record: "r1", Reason: "Lost"}},
		`{"equivalenceGroups":{},"manualInterventions":[{"record":"r1"}],"needsHuman":[{"record":"r0"},{"record":"r1"}]}`: {{Record: "r1"}},
	} {
		if diff := cmp.Diff(want, nodemark.ParseRepairs(text).NeedsHuman); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
