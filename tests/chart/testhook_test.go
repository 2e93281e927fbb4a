package chart

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestHelmTest: the pod of `helm test` reports that it read everything with its rights, and
// fails without them. On the test machine it uses another store.
func TestHelmTest(t *testing.T) {
	if find(rendered(t, file("store")), "Pod", "nvsentinel-test") != nil {
		t.Error("it is there by default")
	}
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	store := "sqlite://" + filepath.Join(t.TempDir(), "store.db")
	records, err := storeopen.Open(t.Context(), store, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), namespace, "nvsentinel-test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := buildServices()
	if err != nil {
		t.Fatal(err)
	}
	objects := rendered(t, file("all"), "--namespace="+namespace)
	pod := as[corev1.Pod](t, find(objects, "Pod", "nvsentinel-test"))
	status := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "nvsentinel"), pod.Spec.Containers[0].Args...)
		cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "NVSENTINEL_STORE=" + store}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := status(); err == nil {
		t.Errorf("without its rights it says\n%s", out)
	}
	for _, o := range objects {
		if o.GetName() != "nvsentinel-test" {
			continue
		}
		if o.GetAnnotations()["helm.sh/hook"] != "test" {
			t.Errorf("%s nvsentinel-test is installed", o.GetKind())
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Until(t, time.Minute, func() bool {
		_, err := status()
		return err == nil
	})
}
