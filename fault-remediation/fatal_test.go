package faultremediation

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestARecordThatKillsTheService: the process dies whenever it looks at the records
// of one node. The other one is repaired, one thing at a time.
func TestARecordThatKillsTheService(t *testing.T) {
	testkit.Long(t, "internal/consume TestPoisonRecordIsDeadLettered, TestOtherCrashesAreNotAttributed live the same lives")
	binary, err := testkit.Controller(t.TempDir(), "fault-remediation")
	if err != nil {
		t.Fatal(err)
	}
	cluster := localcluster.ForTest(t, localcluster.Options{})
	applyCRD(t, cluster)
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "records.db")
	records, err := storeopen.Open(t.Context(), dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	w := &world{t: t, cluster: cluster, records: records, message: "fatal to fault-remediation"}
	w.addNode("fatal-a")
	w.drainedFault("r1", "fatal-a")
	w.message = ""
	w.addNode("fatal-b")
	w.drainedFault("r2", "fatal-b")
	var process *exec.Cmd
	deaths := testkit.RunUntilDone(t, 5, func() <-chan struct{} {
		process = exec.CommandContext(t.Context(), binary, "--store="+dsn, "--single-host", "--kubeconfig="+cluster.AdminKubeconfig(),
			"--metrics-address=off", "--log-format=text")
		process.Env, process.Stderr = append(os.Environ(), "NVSENTINEL_FATAL_TEXT=fatal to fault-remediation"), t.Output()
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() { _ = process.Wait(); close(over) }()
		return over
	}, func() bool {
		r, err := records.Get(t.Context(), "r2")
		return err == nil && r.Status.Remediation != nil && len(r.Status.Remediation.Attempts) == 1 && r.Status.Remediation.Attempts[0].UID != ""
	})
	_ = process.Process.Kill()
	letters, err := records.DeadLetters(t.Context(), "lives of consumers")
	if err != nil || len(letters) == 0 || deaths == 0 {
		t.Errorf("after %d deaths the store remembers %d lives, %v", deaths, len(letters), err)
	}
	objects, err := cluster.Dynamic().Resource(rebootNodes).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects.Items {
		if node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); node == "fatal-a" {
			t.Errorf("the fatal record's node is repaired: %v", o.Object)
		}
	}
	r, err := records.Get(t.Context(), "r1")
	if err != nil || record.Remediated(r.Status) != "null" {
		t.Errorf("the fatal record is %+v, %v", r.Status, err)
	}
}
