package access

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// kubeletForgeries are what root on a node could write of its own Node as its kubelet.
func kubeletForgeries() map[string]change {
	out := map[string]change{
		"the confirmation of a repair": {patch: annotations("remediation.medik8s.io/manually-confirmed-healthy", "")},
		"a clearing":                   {patch: annotations(nodemark.ClearPrefix+"x", "admin: over")},
		"a release":                    {patch: annotations(nodemark.ReleasePrefix+"x", "admin: over")},
		"a canary":                     {patch: annotations(nodemark.CanaryAnnotation, "x")},
		"a count of GPUs":              {patch: labels(nodemark.CountLabelsOf("gpu").Current, "1")},
		"who cordoned":                 {patch: labels(nodemark.DefaultLabelPrefix+"cordon-by", "x")},
		"nobody cordoned":              {patch: labels(nodemark.DefaultLabelPrefix+"cordon-by", nil)},
	}
	for _, key := range []string{
		nodemark.SessionAnnotation, nodemark.UnknownAnnotation, nodemark.RepairAnnotation, nodemark.ResetAnnotation, nodemark.ReleasedAnnotation,
		nodemark.LatestFaultRemediationState, nodemark.RepeatOffenderAnnotation, nodemark.QuarantineHealthEvent, nodemark.QuarantineHealthEventAppliedTaints,
		nodemark.QuarantineHealthEventAppliedLabels, nodemark.QuarantineHealthEventIsCordoned, nodemark.QuarantineHealthEventCordonPreExisting,
		nodemark.QuarantinedNodeUncordonedManually, nodemark.QuarantinedNodeUntaintedManually, nodemark.LiftedByAnnotation,
		nodemark.RestoredAnnotation, nodemark.AnyoneReleasesAnnotation,
	} {
		out["annotation "+key] = change{patch: annotations(key, "forged")}
	}
	for _, key := range []string{
		nodemark.StateLabel, nodemark.ManagedLabel, nodemark.FormerManagedLabel, nodemark.RepeatOffenderLabel, nodemark.DCGMVersionLabel,
		nodemark.DriverInstalledLabel, nodemark.KataEnabledLabel,
	} {
		out["label "+key] = change{patch: labels(key, "false")}
	}
	return out
}

// TestAKubeletWritesNoMark of its own Node, in quarantine or not, by the Node and by its
// status; what a kubelet does write goes through.
func TestAKubeletWritesNoMark(t *testing.T) {
	w := newWorld(t)
	for _, sick := range []bool{false, true} {
		node := w.plain(t, fmt.Sprint("sick-", sick))
		name := node.Name
		kubelet := w.kubelet(t, name)
		if sick {
			quarantined(t, w, node)
		}
		testkit.Until(t, 2*time.Minute, func() bool { // a policy takes effect shortly after it is applied
			forgery := []byte(`{"metadata":{"annotations":{"` + nodemark.CanaryAnnotation + `":"x"}}}`)
			_, err := kubelet.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, forgery, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return refused(err)
		})
		was := w.now(t, name)
		for what, c := range kubeletForgeries() {
			for _, byStatus := range []bool{false, true} {
				c.status = byStatus
				err := c.by(t.Context(), kubelet, name)
				if what == "nobody cordoned" && !sick && err == nil {
					continue // there is nothing to take off
				}
				if !refused(err) {
					t.Errorf("%s on %s, by status %t: %v, want it refused", what, name, byStatus, err)
				}
			}
		}
		if sick {
			for what, c := range map[string]change{
				"uncordoned":       {patch: spec("unschedulable", nil)},
				"without taints":   {patch: spec("taints", nil)},
				"the session over": {patch: metadata("annotations", nil)},
			} {
				if err := c.by(t.Context(), kubelet, name); !refused(err) {
					t.Errorf("%s: %v, want it refused", what, err)
				}
			}
		}
		w.unchanged(t, was)
		for what, c := range map[string]change{
			"its heartbeat":       {true, types.StrategicMergePatchType, status("conditions", []any{condition("Ready", "KubeletReady")})},
			"its boot":            {status: true, patch: status("nodeInfo", map[string]any{"bootID": "next"})},
			"a label of its own":  {patch: labels("example.com/pool", "a")},
			"its volumes' marker": {patch: annotations("volumes.kubernetes.io/controller-managed-attach-detach", "true")},
			"a cordon":            {patch: spec("unschedulable", true)},
		} {
			if err := c.by(t.Context(), kubelet, name); err != nil {
				t.Errorf("%s on %s: %v, want it written", what, name, err)
			}
		}
	}
}

// TestAKubeletBeatsOnANodeThatAPersonUncordoned, whose marks stay as long as
// fault-quarantine is away.
func TestAKubeletBeatsOnANodeThatAPersonUncordoned(t *testing.T) {
	w := newWorld(t)
	node := w.plain(t, "uncordoned")
	kubelet := w.kubelet(t, node.Name)
	quarantined(t, w, node)
	testkit.Until(t, 2*time.Minute, func() bool {
		return refused(change{patch: spec("unschedulable", nil)}.by(t.Context(), kubelet, node.Name))
	})
	if err := (change{patch: spec("unschedulable", nil)}).by(t.Context(), w.admin, node.Name); err != nil {
		t.Fatal(err)
	}
	beat := change{true, types.StrategicMergePatchType, status("conditions", []any{condition("Ready", "KubeletReady")})}
	if err := beat.by(t.Context(), kubelet, node.Name); err != nil {
		t.Errorf("the heartbeat after a person has uncordoned the node: %v, want it written", err)
	}
}

// quarantined has fault-quarantine mark a Node with a cordon and a taint.
func quarantined(t *testing.T, w *world, node *corev1.Node) {
	t.Helper()
	inForce(t, w.account(t, "janitor"), node.Name)
	painter := marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}
	_, err := kube.PatchNode(t.Context(), w.account(t, "fault-quarantine"), w.now(t, node.Name), func(n *corev1.Node) {
		painter.Apply(n, marks.Desired{
			Session: "session", RuleSets: []string{"gpu"}, Faults: []record.Event{{ID: "session", NodeName: node.Name}},
			Effects: record.Effects{Cordon: true, Taints: []record.Taint{{Key: "nvidia.com/gpu-error", Value: "fatal", Effect: "NoSchedule"}}},
		}, time.Now())
		marks.FollowCordon(n)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAKubeletRegistersItsNode: with the labels that a pool of nodes has, the opt-out
// among them, and without any mark of the suite.
func TestAKubeletRegistersItsNode(t *testing.T) {
	w := newWorld(t)
	node := w.plain(t, "kubelet-first")
	testkit.Until(t, 2*time.Minute, func() bool {
		return refused(kubeletForgeries()["a canary"].by(t.Context(), w.kubelet(t, node.Name), node.Name))
	})
	register := func(name string, labels, annotations map[string]string) error {
		_, err := w.kubelet(t, name).CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		return err
	}
	if err := register("kubelet-a", map[string]string{"example.com/pool": "a", nodemark.ManagedLabel: nodemark.ManagedOptOut}, nil); err != nil {
		t.Errorf("a Node with the labels of its pool: %v", err)
	}
	for what, err := range map[string]error{
		"a session": register("kubelet-b", nil, map[string]string{nodemark.SessionAnnotation: "x"}),
		"a claim":   register("kubelet-c", nil, map[string]string{nodemark.RepairAnnotation: "x"}),
		"a state":   register("kubelet-d", map[string]string{nodemark.StateLabel: "draining"}, nil),
		"a lemon":   register("kubelet-e", map[string]string{nodemark.RepeatOffenderLabel: nodemark.RepeatOffenderTrue}, nil),
	} {
		if !refused(err) {
			t.Errorf("a Node with %s: %v, want it refused", what, err)
		}
	}
}
