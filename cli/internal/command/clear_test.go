package command_test

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// policy applies what holds that a clearing bears its writer's name.
func (w *world) policy(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../../distros/helm/nvsentinel/manifests/clear.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(text))
	// A policy counts a moment after it was made.
	testkit.Until(t, 2*time.Minute, func() bool { return apierrors.IsInvalid(w.forge(t, w.cluster.RESTConfig(), "mallory: x")) })
}

// forge asks the API server whether an annotation would be taken.
func (w *world) forge(t *testing.T, as *rest.Config, value string, sub ...string) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"annotations":{"` + nodemark.ClearPrefix + w.fault.ID + `":"` + value + `"}}}`)
	_, err = client.CoreV1().Nodes().Patch(t.Context(), w.node.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, sub...)
	return err
}

// connector plays the connector of role cluster and the Node's own.
func (w *world) connector(t *testing.T) {
	t.Helper()
	testkit.Until(t, 2*time.Minute, func() bool {
		node, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), w.node.Name, metav1.GetOptions{})
		return err == nil && len(nodemark.Clearings(node.Annotations)) == 1
	})
	node, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), w.node.Name, metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	c := nodemark.Clearings(node.Annotations)[0]
	recovery := fault.ManualClearance(w.fault, c.By, c.Reason, w.fault.Node, time.Now())
	if _, err := w.records.Append(t.Context(), []record.Record{recovery}); err != nil {
		t.Error(err)
	}
	w.show(t, corev1.ConditionFalse)
}

func (w *world) show(t *testing.T, status corev1.ConditionStatus) {
	t.Helper()
	patch := []byte(`{"status":{"conditions":[{"type":"` + w.fault.Event.CheckName + `","status":"` + string(status) + `","reason":"test"}]}}`)
	_, err := w.cluster.Client().CoreV1().Nodes().Patch(t.Context(), w.node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Error(err)
	}
}

// TestClear: a person's name is in the recovery, and nothing of the clearing is
// left on the Node.
func TestClear(t *testing.T) {
	w := newWorld(t)
	w.policy(t)
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nvsentinel-operator}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list, patch]}]
`)
	operator := w.account(t, "operator", "nvsentinel-operator")
	w.show(t, corev1.ConditionTrue)
	done := make(chan struct{})
	go func() { defer close(done); w.connector(t) }()
	p := command.Program{Store: w.dsn}
	got := run(t, p, "clear", w.node.Name, w.fault.ID, "--kubeconfig", operator, "--reason", "GPU replaced", "--wait", "2m")
	<-done
	got.expect(t, command.ExitComplete, "cleared by recovery "+fault.ClearingID(w.fault.ID), "")
	recovery, err := w.records.Get(t.Context(), fault.ClearingID(w.fault.ID))
	if err != nil || recovery.Event.Message != "cleared by system:serviceaccount:operators:operator: GPU replaced" {
		t.Errorf("recovery %q, %v", recovery.Event.Message, err)
	}
	node, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), w.node.Name, metav1.GetOptions{})
	if err != nil || len(nodemark.Clearings(node.Annotations)) != 0 {
		t.Errorf("annotations %v are left, %v", node.Annotations, err)
	}
	for _, tt := range []struct{ record, kubeconfig, message string }{
		{"01a2012f-5f2b-747d-a191-050c9f567ad1", operator, "has no record"},
		{fault.ClearingID(w.fault.ID), operator, "is a recovery"},
		{w.fault.ID, w.viewer, "forbidden"},
	} {
		run(t, p, "clear", w.node.Name, tt.record, "--kubeconfig", tt.kubeconfig).expect(t, command.ExitFailed, "", tt.message)
	}
}

// TestClearUsesOwnName tries to forge a clearing.
func TestClearUsesOwnName(t *testing.T) {
	w := newWorld(t)
	w.policy(t)
	as := func(user string, groups ...string) *rest.Config {
		rc := rest.CopyConfig(w.cluster.RESTConfig())
		rc.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:masters")}
		return rc
	}
	kubelet := "system:node:" + w.node.Name
	quarantine := "system:serviceaccount:nvsentinel:fault-quarantine"
	for name, tt := range map[string]struct {
		as    *rest.Config
		value string
		taken bool
	}{
		"own name":          {as("alice"), "alice: replaced", true},
		"another's":         {as("alice"), "bob: replaced", false},
		"a longer name":     {as("alice"), "alice2: replaced", false},
		"no name":           {as("alice"), "replaced", false},
		"a kubelet":         {as(kubelet, "system:nodes"), kubelet + ": replaced", false},
		"a service of ours": {as(quarantine, "system:serviceaccounts:nvsentinel"), quarantine + ": replaced", false},
	} {
		for _, sub := range [][]string{nil, {"status"}} { // both let annotations through
			if err := w.forge(t, tt.as, tt.value, sub...); (err == nil) != tt.taken || err != nil && !strings.Contains(err.Error(), "nvsentinel-clear") {
				t.Errorf("%s %v: %v", name, sub, err)
			}
		}
	}
}
