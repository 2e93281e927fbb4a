package removal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/cli/removal"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// lines are the items but for folders: fate, kind, object, mark, reason.
func lines(p removal.Plan) (out []string) {
	for _, i := range p.Items {
		if i.Kind == removal.Folder {
			continue
		}
		fate := "leave"
		if i.Remove {
			fate = "remove"
		}
		out = append(out, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s", fate, i.Kind, i.Name, i.Mark, i.Reason)), " "))
	}
	return out
}

// quarantined is a node that fault-quarantine has taken out of service.
func quarantined(change func(*corev1.Node)) corev1.Node {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": "a"}}}
	change(&node)
	marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}.Apply(&node, marks.Desired{
		Session: "s", RuleSets: []string{"fatal"},
		Effects: record.Effects{Cordon: true, Taints: []record.Taint{{Key: "gpu", Value: "xid", Effect: "NoSchedule"}}},
	}, at)
	return node
}

func bare(*corev1.Node) {}

func released(n corev1.Node, claim string) corev1.Node {
	nodemark.SetClaim(&n, claim)
	marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}.Apply(&n, marks.Desired{}, at)
	return n
}

// TestNodes: what becomes of each mark of a node.
func TestNodes(t *testing.T) {
	session := func(fate, reason string) (out []string) {
		for _, x := range []string{
			"cordon n unschedulable", "taint n gpu=xid:NoSchedule", "label n dgxc.nvidia.com/nvsentinel-state=quarantined",
			"label n k8saas.nvidia.com/cordon-by=NVSentinel", "label n k8saas.nvidia.com/cordon-reason=fatal", "label n k8saas.nvidia.com/cordon-timestamp=2026-03-01T12-00-00Z",
			"annotation n dgxc.nvidia.com/nvsentinel-session", "annotation n quarantineHealthEvent",
			"annotation n quarantineHealthEventAppliedTaints", "annotation n quarantineHealthEventIsCordoned",
		} {
			out = append(out, fate+" Node "+x+" "+reason)
		}
		return out
	}
	theirs := func(n *corev1.Node) {
		n.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "gpu", Value: "xid", Effect: "NoSchedule"}}}
	}
	with := func(labels, annotations map[string]string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels, Annotations: annotations}}
	}
	condition := func(status corev1.ConditionStatus, reason, message string) corev1.Node {
		n := with(nil, nil)
		n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "KubeletReady"}, {Type: "Xid", Status: status, Reason: reason, Message: message}}
		return n
	}
	for name, c := range map[string]struct {
		node    corev1.Node
		release bool
		want    []string
	}{
		"nothing of ours": {with(map[string]string{"nvidia.com/gpu.deploy.dcgm": "false", "k8saas.nvidia.com/cordon-by": "ann"}, map[string]string{"theirs": "x"}), true, nil},
		"in quarantine":   {quarantined(bare), false, session("leave", "InQuarantine")},
		"to be released":  {quarantined(bare), true, session("remove", "Released")},
		"others were there first": {quarantined(theirs), true, []string{
			"leave Node cordon n unschedulable PreExisting", "leave Node taint n gpu=xid:NoSchedule PreExisting",
			"remove Node label n dgxc.nvidia.com/nvsentinel-state=quarantined Released",
			"remove Node annotation n dgxc.nvidia.com/nvsentinel-session Released", "remove Node annotation n quarantineHealthEvent Released",
			"remove Node annotation n quarantineHealthEventAppliedTaints Released", "remove Node annotation n quarantineHealthEventCordonPreExisting Released",
		}},
		"faults of which nobody knows": {with(nil, map[string]string{nodemark.UnknownAnnotation: "f"}), false, []string{"leave Node annotation n dgxc.nvidia.com/nvsentinel-session-unknown InQuarantine"}},
		"kept for a repair": {released(quarantined(bare), "at-work"), false, []string{
			"leave Node cordon n unschedulable InQuarantine", "leave Node taint n gpu=xid:NoSchedule InQuarantine",
			"leave Node label n k8saas.nvidia.com/cordon-by=NVSentinel InQuarantine", "leave Node label n k8saas.nvidia.com/cordon-reason=fatal InQuarantine",
			"leave Node label n k8saas.nvidia.com/cordon-timestamp=2026-03-01T12-00-00Z InQuarantine",
			"leave Node annotation n dgxc.nvidia.com/nvsentinel-repair InQuarantine", "leave Node annotation n quarantineHealthEventAppliedTaints InQuarantine",
			"leave Node annotation n quarantineHealthEventIsCordoned InQuarantine",
		}},
		"kept for a repair that is gone": {released(quarantined(bare), "gone"), false, []string{
			"remove Node cordon n unschedulable Managed", "remove Node taint n gpu=xid:NoSchedule Managed",
			"remove Node label n k8saas.nvidia.com/cordon-by=NVSentinel Managed", "remove Node label n k8saas.nvidia.com/cordon-reason=fatal Managed",
			"remove Node label n k8saas.nvidia.com/cordon-timestamp=2026-03-01T12-00-00Z Managed",
			"remove Node annotation n dgxc.nvidia.com/nvsentinel-repair Managed", "remove Node annotation n quarantineHealthEventAppliedTaints Managed",
			"remove Node annotation n quarantineHealthEventIsCordoned Managed",
		}},
		"back in service": {released(quarantined(bare), ""), false, []string{
			"remove Node label n k8saas.nvidia.com/uncordon-by=NVSentinel Managed", "remove Node label n k8saas.nvidia.com/uncordon-reason=fatal-removed Managed",
			"remove Node label n k8saas.nvidia.com/uncordon-timestamp=2026-03-01T12-00-00Z Managed",
		}},
		"GPU services are stopped": {with(nil, map[string]string{nodemark.ResetAnnotation: "u"}), true, []string{"leave Node annotation n dgxc.nvidia.com/nvsentinel-reset ServicesOff"}},
		"of people": {with(map[string]string{nodemark.ManagedLabel: "false", nodemark.RepeatOffenderLabel: "true", nodemark.FormerManagedLabel: "false"}, nil), true, []string{
			"leave Node label n dgxc.nvidia.com/nvsentinel-repeat-offender=true UserManaged", "leave Node label n k8saas.nvidia.com/ManagedByNVSentinel=false UserManaged",
			"leave Node label n nvsentinel.dgxc.nvidia.com/managed=false UserManaged",
		}},
		"of nobody that is known": {with(map[string]string{"nvsentinel.dgxc.nvidia.com/later": "x"}, nil), true, []string{"leave Node label n nvsentinel.dgxc.nvidia.com/later=x Uncertain"}},
		"labeler's": {with(map[string]string{nodemark.KataEnabledLabel: "false", nodemark.CountLabelsOf("nic").Group: "g"}, nil), false, []string{
			"remove Node label n nvsentinel.dgxc.nvidia.com/kata.enabled=false Managed", "remove Node label n nvsentinel.dgxc.nvidia.com/nic.count.group=g Managed",
		}},
		"a condition of ours":             {condition("False", "XidIsHealthy", record.HealthyMessage), false, []string{"remove Node condition n Xid=False Managed"}},
		"a condition that is nearly ours": {condition("Unknown", "XidIsHealthy", ""), true, []string{"leave Node condition n Xid=Unknown Uncertain"}},
		"a condition of others":           {condition("True", "KernelDeadlock", "stuck"), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := removal.Facts{Nodes: []corev1.Node{c.node}, Definitions: []removal.Definition{repairs("RebootNode", object("at-work", nil))}}
			var got []string
			for _, x := range lines(removal.Decide(f, removal.Options{ReleaseNodes: c.release})) {
				if strings.Contains(x, " Node ") {
					got = append(got, x)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func repairs(kind string, objects ...unstructured.Unstructured) removal.Definition {
	group := "janitor.dgxc.nvidia.com"
	if strings.HasPrefix(kind, "Repair") || kind == "Later" {
		group = "nvsentinel.dgxc.nvidia.com"
	}
	return removal.Definition{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(kind) + "s." + group}, Kind: kind,
		Resource: schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: strings.ToLower(kind) + "s"}, Objects: objects,
	}
}

func object(uid string, status map[string]any, finalizers ...string) unstructured.Unstructured {
	x := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": uid, "uid": uid}, "status": status}}
	x.SetFinalizers(finalizers)
	return x
}

// of is an object of a session.
func of(session string, x unstructured.Unstructured) unstructured.Unstructured {
	x.SetAnnotations(map[string]string{nodemark.SessionAnnotation: session})
	return x
}

// TestObjects: what becomes of objects of our kinds, and of the definitions.
func TestObjects(t *testing.T) {
	succeeded := func(status string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{"type": "Succeeded", "status": status}}}
	}
	done := map[string]any{"completionTime": "2026-03-01T12:00:00Z"}
	const claim = "janitor.dgxc.nvidia.com/claim"
	release, crds := removal.Options{ReleaseNodes: true}, removal.Options{Definitions: true}
	for name, c := range map[string]struct {
		of   removal.Definition
		o    removal.Options
		want []string // of the object, of the definition
	}{
		"ended":                                {repairs("RebootNode", object("u", done)), removal.Options{}, []string{"remove Managed", "leave NotRequested"}},
		"ended, and the definition goes":       {repairs("RebootNode", object("u", done)), crds, []string{"remove Managed", "remove Requested"}},
		"judged, but claims still":             {repairs("RebootNode", object("u", succeeded("True"))), crds, []string{"leave InProgress", "leave ObjectsRemain"}},
		"under way":                            {repairs("RebootNode", object("u", nil, claim)), removal.Options{}, []string{"leave InProgress", "leave NotRequested"}},
		"under way, and given up":              {repairs("RebootNode", object("u", nil, claim)), release, []string{"remove Released", "leave NotRequested"}},
		"held by a stranger":                   {repairs("RebootNode", object("u", done, claim, "example.com/hold")), release, []string{"leave ForeignFinalizer", "leave NotRequested"}},
		"ended, its node is not repaired":      {repairs("RebootNode", of("s", object("u", done))), crds, []string{"leave InQuarantine", "leave ObjectsRemain"}},
		"ended, its node is to be released":    {repairs("RebootNode", of("s", object("u", done))), release, []string{"remove Managed", "leave NotRequested"}},
		"ended, in a session that is over":     {repairs("RebootNode", of("before", object("u", done))), removal.Options{}, []string{"remove Managed", "leave NotRequested"}},
		"services are stopped":                 {repairs("GPUReset", object("off", done)), removal.Options{ReleaseNodes: true, Definitions: true}, []string{"leave ServicesOff", "leave ObjectsRemain"}},
		"a run that failed":                    {repairs("RepairRun", object("u", succeeded("False"))), removal.Options{}, []string{"remove Managed", "leave NotRequested"}},
		"a run that goes on":                   {repairs("RepairRun", object("u", succeeded("Unknown"))), removal.Options{}, []string{"leave InProgress", "leave NotRequested"}},
		"what people wrote":                    {repairs("RepairChain", object("u", nil)), release, []string{"leave UserManaged", "leave NotRequested"}},
		"what people wrote goes with its kind": {repairs("RepairChain", object("u", nil)), crds, []string{"remove Requested", "remove Requested"}},
		"a kind that is not known":             {repairs("Later", object("u", nil)), crds, []string{"leave Uncertain", "leave ObjectsRemain"}},
		"without objects":                      {repairs("RebootNode"), crds, []string{"remove Requested"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := corev1.Node{}
			nodemark.SetReset(&node, "off")
			nodemark.Annotate(&node, nodemark.SessionAnnotation, "s")
			p := removal.Decide(removal.Facts{Nodes: []corev1.Node{node}, Definitions: []removal.Definition{c.of}}, c.o)
			var got []string
			for _, i := range p.Items {
				if i.Kind == c.of.Kind || i.Kind == removal.CRD {
					got = append(got, strings.Fields(lines(removal.Plan{Items: []removal.Item{i}})[0])[0]+" "+string(i.Reason))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestForeignKinds: a kind of medik8s' stays, and one that goes already is not removed
// again.
func TestForeignKinds(t *testing.T) {
	checks := removal.Definition{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Kind: "NodeHealthCheck", Resource: schema.GroupVersionResource{Group: "remediation.medik8s.io"}, Objects: []unstructured.Unstructured{object("u", nil)}}
	going := repairs("RebootNode")
	going.DeletionTimestamp = &metav1.Time{Time: at}
	got := lines(removal.Decide(removal.Facts{Definitions: []removal.Definition{checks, going}}, removal.Options{ReleaseNodes: true, Definitions: true}))
	want := []string{"leave CustomResourceDefinition c Shared", "leave CustomResourceDefinition rebootnodes.janitor.dgxc.nvidia.com Terminating"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLeasesAndConfigMaps: by name in the namespace, by holder among the leases of nodes;
// a service that holds an election lease still runs.
func TestLeasesAndConfigMaps(t *testing.T) {
	lease := func(name, holder string, age time.Duration) coordinationv1.Lease {
		seconds, renewed := int32(15), metav1.NewMicroTime(at.Add(-age))
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}}
	}
	config := func(name string, data map[string]string, owner ...metav1.OwnerReference) corev1.ConfigMap {
		return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner, Labels: map[string]string{"app.kubernetes.io/managed-by": "aws"}}, Data: data}
	}
	memo, node := map[string]string{"memo.json": "{}"}, metav1.OwnerReference{Kind: "Node"}
	f := removal.Facts{
		Now: at, Workloads: []string{"DaemonSet/x"}, Events: 3,
		Pods:   []metav1.ObjectMeta{{Name: "train"}},
		Leases: []coordinationv1.Lease{lease("janitor-repairs", "a", 16*time.Second), lease("labeler-labels", "b", 15*time.Second), lease("repair-chain-runs", "", 0), lease("their-leader", "c", 0)},
		Claims: []coordinationv1.Lease{lease("node-1", "fault-remediation", 0), lease("node-2", "NodeHealthCheck-workers", 0), lease("node-3", "their-operator", 0), lease("node-4", "RepairRun-by-hand", 0)},
		ConfigMaps: []corev1.ConfigMap{
			config("nvsentinel-pause", nil), config("nvsentinel-brake", nil), config("kubernetes-object-monitor-state", nil), config("aws-0123", memo, node), config("aws-4567", memo), config("aws-89ab", nil, node), config("other", memo, node),
		},
	}
	p := removal.Decide(f, removal.Options{})
	want := []string{
		"remove Pod annotation train dgxc.nvidia.com/devices Managed",
		"remove ConfigMap nvsentinel-pause Managed", "remove ConfigMap nvsentinel-brake Managed", "remove ConfigMap kubernetes-object-monitor-state Managed", "remove ConfigMap aws-0123 Managed",
		"remove Lease janitor-repairs Managed", "leave Lease labeler-labels InUse", "remove Lease repair-chain-runs Managed",
		"remove Lease node-1 Managed", "leave Lease node-2 Uncertain", "remove Lease node-4 Managed", "leave Event 3 Events Expires",
	}
	if diff := cmp.Diff(want, lines(p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"DaemonSet/x", "the holder of Lease/labeler-labels: b"}, p.Running); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
}

// TestProjectEvents: of a service, of the emergency stop, and of a connector about a node.
func TestProjectEvents(t *testing.T) {
	about := func(kind, name, component, reason string) corev1.Event {
		return corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Source: corev1.EventSource{Component: component}, Reason: reason}
	}
	for _, c := range []struct {
		event corev1.Event
		want  bool
	}{
		{about("Node", "n", eventrecorder.Component("fault-quarantine"), "NodeReleased"), true},
		{about("Node", "n", "gpu-health-monitor", "GpuInforomWatchIsNotHealthy"), true},
		{about("ConfigMap", "nvsentinel-pause", "nvsentinel", "NVSentinelPaused"), true},
		{about("ConfigMap", "nvsentinel-brake", "nvsentinel", "NVSentinelPaused"), true},
		{about("Pod", "n", "theirs", "ProbeIsNotHealthy"), false},
		{about("ConfigMap", "other", "nvsentinel", "NVSentinelPaused"), false},
		{about("Node", "n", "kubelet", "NodeNotReady"), false},
	} {
		if got := removal.ProjectEvent(c.event); got != c.want {
			t.Errorf("%+v: %t", c.event, got)
		}
	}
}
