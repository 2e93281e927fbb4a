package command_test

import (
	"os"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// operator returns the kubeconfig of an account with the rights that
// docs/tasks/pause-remediation.md lists, in a namespace, and no others.
func (w *world) operator(t *testing.T, namespace string) (kubeconfig string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/tasks/pause-remediation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	role, _, _ := strings.Cut(rest, "```")
	const name = "brake-operator"
	w.apply(t, strings.Replace(role, "namespace: nvsentinel}", "namespace: "+namespace+"}", 1)+`---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: `+name+`, namespace: `+namespace+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: nvsentinel-pause-operator}
subjects: [{kind: ServiceAccount, name: `+name+`, namespace: operators}]
`)
	kubeconfig = w.account(t, name, "")
	testkit.Until(t, 2*time.Minute, func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:operators:" + name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Resource: "configmaps", Name: pause.Name},
		}}
		answer, err := w.cluster.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed
	})
	return kubeconfig
}

// TestPause: an authorized user switches the emergency stop on in their own name, without
// a store; status and why show it, with the user and the reason.
func TestPause(t *testing.T) {
	w := newWorld(t)
	namespace := w.cluster.Namespace(t)
	operator := w.operator(t, namespace)
	p := command.Program{Store: w.dsn}
	ask := func(verb, kubeconfig string, args ...string) answer {
		t.Helper()
		return run(t, p, append([]string{verb, "-n", namespace, "--kubeconfig", kubeconfig}, args...)...)
	}
	ask("status", w.viewer).expect(t, command.ExitComplete, "  emergency stop OFF\n", "")
	run(t, command.Program{}, "resume", "-n", namespace, "--kubeconfig", operator).expect(t, command.ExitComplete, "no change: emergency stop OFF\n", "")
	on := run(t, command.Program{}, "pause", "-n", namespace, "--kubeconfig", operator, "--reason", "wrong catalog")
	on.expect(t, command.ExitComplete, "emergency stop ON, set by system:serviceaccount:operators:brake-operator: wrong catalog, and every service", "")
	const message = ", set by system:serviceaccount:operators:brake-operator: wrong catalog"
	ask("pause", operator, "--reason", "another").expect(t, command.ExitComplete, message, "")
	ask("status", w.viewer).expect(t, command.ExitComplete, message, "")
	ask("status", w.viewer).expect(t, command.ExitComplete, "! emergency stop ON since ", "")
	ask("why", w.viewer, w.node.Name).expect(t, command.ExitComplete, message, "")
	fleet := decode[timeline.Fleet](t, ask("status", w.viewer, "-o", "json"))
	if b := fleet.Pause; !b.Read || !b.On || b.Reason != "wrong catalog" || b.Since.IsZero() {
		t.Errorf("brake %+v", b)
	}
	ask("resume", w.viewer).expect(t, command.ExitFailed, "", "forbidden")
	ask("resume", operator).expect(t, command.ExitComplete, "emergency stop OFF, set by", "")
	ask("status", w.viewer).expect(t, command.ExitComplete, "  emergency stop OFF since ", "")
	ask("resume", operator, "now").expect(t, command.ExitUsage, "", `unknown command "now"`)
}

// TestUnreadablePause: an emergency stop that cannot be read is unknown, not off.
func TestUnreadablePause(t *testing.T) {
	w := newWorld(t)
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: no-brake}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list]}
  - {apiGroups: [janitor.dgxc.nvidia.com], resources: [rebootnodes, terminatenodes, gpuresets], verbs: [list]}
`)
	viewer := w.account(t, "no-brake", "no-brake")
	for _, args := range [][]string{{"status"}, {"why", w.node.Name}} {
		run(t, command.Program{Store: w.dsn}, append(args, "--kubeconfig", viewer)...).expect(t, command.ExitPartial, "! emergency stop UNREADABLE: reading the emergency stop: configmaps", "")
	}
}
