package janitor

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// The manifests are taken by a real API server, and the configuration and the
// arguments in them by the janitor.
func TestManifests(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	const manifests = "../distros/helm/nvsentinel/manifests/"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nvsentinel"}}
	if _, err := cluster.Client().CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(manifests + "deploy/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("manifests %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if err := text.Close(); err != nil {
			t.Error(err)
		}
	}
	stored, err := cluster.Client().CoreV1().ConfigMaps("nvsentinel").Get(t.Context(), "janitor", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := cluster.Client().AppsV1().Deployments("nvsentinel").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "janitor.toml")
	writeFile(t, file, []byte(stored.Data["janitor.toml"]))
	chosen, args := "--controllers="+name, deployment.Spec.Template.Spec.Containers[0].Args
	if len(args) == 0 || args[0] != chosen {
		t.Fatalf("the arguments of the manifest are %q, want %s first", args, chosen)
	}
	args = append(args[1:], "--check-config", "--config", file)
	if code := daemon.RunForTest(t, name, defaultConfig(), build, args...).Wait(); code != 0 {
		t.Errorf("the configuration of the manifest: exit code %d, want 0", code)
	}
}
