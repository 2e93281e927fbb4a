package faultremediation

import (
	"context"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestManualChangeOfRepeatOffenderLabel: the running service hears of it, puts it on and
// takes it off.
func TestManualChangeOfRepeatOffenderLabel(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	applyCRD(t, cluster)
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "records.db")
	records, err := storeopen.Open(t.Context(), dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	w := &world{t: t, cluster: cluster, records: records}
	w.addNode("lemon")
	daemon.RunForTest(t, name, defaultConfig(), build, "--store="+dsn, "--single-host", "--kubeconfig="+cluster.AdminKubeconfig())
	w.drainedFault("r1", "lemon")
	w.waitForObject("lemon")
	label := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"labels":{"` + nodemark.RepeatOffenderLabel + `":` + value + `}}}`)
		if _, err := cluster.Client().CoreV1().Nodes().Patch(t.Context(), "lemon", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label(`"true"`)
	w.eventually("the machine is written on the Node", func(context.Context) bool {
		note, ok := nodemark.ParseRepeatOffender(w.node("lemon").Annotations[nodemark.RepeatOffenderAnnotation])
		return ok && note.Machine.UID == string(w.node("lemon").UID) && len(note.Repairs) == 1
	})
	label("null")
	w.waitForRecord("r1", "the repair is forgiven", func(s record.Status) bool { return s.Remediation.Forgiven != nil })
	w.eventually("the annotation is gone", func(context.Context) bool {
		return w.node("lemon").Annotations[nodemark.RepeatOffenderAnnotation] == ""
	})
}
