package command_test

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestRelease: the request has the person's name, fault-quarantine follows it, and the
// command ends with the session. Without fault-quarantine the request stays.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	p := command.Program{}
	run(t, p, "release", w.node.Name, "--wait", "1s", "--reason", "early", "--kubeconfig", w.cluster.AdminKubeconfig()).
		expect(t, command.ExitPartial, "requested as user local-cluster-admin", "the annotation release.nvsentinel.dgxc.nvidia.com/")
	var quarantine sync.WaitGroup
	quarantine.Go(func() { // follows the request, as fault-quarantine does
		testkit.Until(t, 2*time.Minute, func() bool {
			node, err := kube.ReadNode(t.Context(), w.cluster.Client(), w.node.Name)
			if err != nil || nodemark.Read(node).Request.Reason != "replaced" || nodemark.Read(node).Released != nodemark.ByRequest {
				return false
			}
			_, err = kube.PatchNode(t.Context(), w.cluster.Client(), node, func(n *corev1.Node) {
				marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}.Apply(n, marks.Desired{}, time.Now())
			})
			return err == nil
		})
	})
	run(t, p, "release", w.node.Name, "--reason", "replaced", "--kubeconfig", w.cluster.AdminKubeconfig()).expect(t, command.ExitComplete, "has ended", "")
	quarantine.Wait()
	run(t, p, "release", w.node.Name, "--kubeconfig", w.cluster.AdminKubeconfig()).expect(t, command.ExitFailed, "", "has no quarantine session")
}

// TestAServiceAccountReleasesNothing: the policy refuses it.
func TestAServiceAccountReleasesNothing(t *testing.T) {
	w := newWorld(t)
	text, err := os.ReadFile("../../../distros/helm/nvsentinel/manifests/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(text))
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: release-nodes}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list, patch]}, {apiGroups: [""], resources: [configmaps, services], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: release-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: release-nodes}
subjects: [{kind: ServiceAccount, name: releaser, namespace: operators}]
`)
	path := w.account(t, "releaser", "")
	tries := 0
	testkit.Until(t, 2*time.Minute, func() bool { // a right and a policy are active a moment later
		tries++
		r := run(t, command.Program{}, "release", w.node.Name, "--reason", strconv.Itoa(tries), "--wait", "1s", "--kubeconfig", path)
		return r.code == command.ExitFailed && strings.Contains(r.err, "only a user can release a node")
	})
}
