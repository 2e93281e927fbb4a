package nodemark_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestEraseKnowsEveryKey: of all keys that this package names, those stay that people
// write, and the one that shows that GPU services are off.
func TestEraseKnowsEveryKey(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"foreign": "x", "nvsentinel.dgxc.nvidia.com/nic.count.group": "g", "nvsentinel.dgxc.nvidia.com/.count.group": "g", "nvsentinel.dgxc.nvidia.com/gpu.count.other": "g"},
		Annotations: map[string]string{"foreign": "x", nodemark.ClearPrefix + "r1": "ann: why"},
	}}
	for key, kind := range keys(t) {
		switch kind {
		case "label":
			node.Labels[key] = nodemark.RepeatOffenderTrue
		case "annotation":
			node.Annotations[key] = "x"
		}
	}
	nodemark.Erase(node)
	left := append(slices.Collect(maps.Keys(node.Labels)), slices.Collect(maps.Keys(node.Annotations))...)
	want := []string{
		"foreign", "foreign", nodemark.ManagedLabel, nodemark.FormerManagedLabel, nodemark.ResetAnnotation,
		"nvsentinel.dgxc.nvidia.com/.count.group", "nvsentinel.dgxc.nvidia.com/gpu.count.other",
	}
	slices.Sort(left)
	slices.Sort(want)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// TestEraseLeavesManualRepeatOffender: a label without the annotation that we write beside
// it, and one of another value.
func TestEraseLeavesManualRepeatOffender(t *testing.T) {
	for name, c := range map[string]struct {
		label string
		noted bool
		stays bool
	}{
		"of the services":                  {"true", true, false},
		"of a person":                      {"true", false, true},
		"another value, beside an account": {"sour", true, true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{nodemark.RepeatOffenderLabel: c.label}}}
		if c.noted {
			nodemark.Annotate(node, nodemark.RepeatOffenderAnnotation, "{}")
		}
		nodemark.Erase(node)
		if _, stays := node.Labels[nodemark.RepeatOffenderLabel]; stays != c.stays || len(node.Annotations) > 0 {
			t.Errorf("%s: %v %v", name, node.Labels, node.Annotations)
		}
	}
}

// TestAuthorOf: the reason alone makes no condition ours.
func TestAuthorOf(t *testing.T) {
	condition := func(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: "Xid", Status: status, Reason: reason, Message: message}
	}
	for _, c := range []struct {
		condition corev1.NodeCondition
		want      nodemark.Author
	}{
		{condition("False", "XidIsHealthy", record.HealthyMessage), nodemark.Connector},
		{condition("True", "XidIsNotHealthy", "ErrorCode:79 lost Recommended Action=RESTART_VM;"), nodemark.Connector},
		{condition("True", "XidIsNotHealthy", strings.Repeat("x", 99)+";..."), nodemark.Connector},
		{condition("True", "XidIsNotHealthy", "broken"), nodemark.Perhaps},
		{condition("False", "XidIsNotHealthy", "Recommended Action=NONE;"), nodemark.Perhaps},
		{condition("True", "XidIsHealthy", record.HealthyMessage), nodemark.Perhaps},
		{condition("False", "XidIsHealthy", "fine"), nodemark.Perhaps},
		{condition("True", "OtherIsNotHealthy", "Recommended Action=NONE;"), nodemark.Stranger},
		{condition("False", "KubeletReady", record.HealthyMessage), nodemark.Stranger},
	} {
		if got := nodemark.AuthorOf(c.condition); got != c.want {
			t.Errorf("%+v: %s, want %s", c.condition, got, c.want)
		}
	}
}
