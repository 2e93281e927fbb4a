package sweep_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestRefusedWhileServicesRun: neither a workload nor a lease that is held may be there,
// and the answer states what to do first.
func TestRefusedWhileServicesRun(t *testing.T) {
	w := newWorld(t)
	leases := w.cluster.Client().CoordinationV1().Leases(w.namespace)
	lease, err := leases.Get(t.Context(), "janitor-repairs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(time.Hour)}
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := w.cluster.Client().CoreV1().Pods(w.namespace)
	pod, err := pods.Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Labels = map[string]string{"app.kubernetes.io/part-of": "nvsentinel"}
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := w.inventory(t)
	p, code, problem := w.uninstall(t, "--yes")
	if diff := cmp.Diff([]string{"Pod " + w.namespace + "/other", "the holder of Lease/janitor-repairs: killed"}, p.Running); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if code != command.ExitFailed || !strings.Contains(problem, "helm uninstall <release> -n "+w.namespace) {
		t.Errorf("exit code %d: %s", code, problem)
	}
	if gone := differ(t, before, w.inventory(t)); len(gone) > 0 {
		t.Errorf("took %v", gone)
	}
	if _, code, _ := w.uninstall(t); code != command.ExitComplete {
		t.Errorf("the list alone: exit code %d", code)
	}
}

// TestNotEverythingRead: the list states what is missing from it, and nothing is removed by
// half a list.
func TestNotEverythingRead(t *testing.T) {
	w := newWorld(t)
	kubeconfig, err := w.cluster.ServiceAccountKubeconfig(t.Context(), "operators", "viewer", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		program := command.Program{Out: &out, Err: &errs, Clock: clock.RealClock{}}
		code := program.Run(t.Context(), append([]string{"uninstall", "-n", w.namespace, "--kubeconfig", kubeconfig}, args...))
		return code, out.String() + errs.String()
	}
	if code, text := run(); code != command.ExitFailed || !strings.Contains(text, "reading the cluster: no kind could be read") {
		t.Errorf("without any right: exit code %d: %s", code, text)
	}
	w.apply(t, "testdata/viewer.yaml")
	testkit.Until(t, 2*time.Minute, func() bool { code, _ := run(); return code == command.ExitPartial }) // a right counts a moment later
	before := w.inventory(t)
	if _, text := run(); !strings.Contains(text, "! not read: pods: ") || !strings.Contains(text, "  remove  labelled") {
		t.Errorf("the list in part: %s", text)
	}
	if code, text := run("--yes"); code != command.ExitFailed || !strings.Contains(text, "nothing removed: ") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if gone := differ(t, before, w.inventory(t)); len(gone) > 0 {
		t.Errorf("took %v", gone)
	}
}
