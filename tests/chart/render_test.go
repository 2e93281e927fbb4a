// Package chart tests the Helm chart: what Helm makes of it, with which values, and
// whether a real API server and the real services take that.
package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/programs"
)

const (
	root = "../.."
	// release is a namespace that no text of the chart could mean by chance.
	release = "gpu-health"
)

// values are the value files that the tests render; the first is what the documentation
// requires.
var values = []string{"store", "all", "own-plugin", "kwok", "nodes", "nulls", "nothing", "sidecar", "two", "clouds", "trial", "small"}

// tools is where helm and the services are, built for this run.
var tools string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "chart")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		tools = dir
		return localcluster.Main(m)
	}())
}

// buildHelm builds the helm of hack/tools, unless make test has built it.
var buildHelm = sync.OnceValues(func() (string, error) {
	if built := os.Getenv(testkit.Prebuilt); built != "" {
		return filepath.Join(built, "helm"), nil
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	if err := (gobuild.Builder{Progress: os.Stderr}).Build(context.Background(), programs.Helm(repository, tools)); err != nil {
		return "", err
	}
	return filepath.Join(tools, "helm"), nil
})

// helm runs helm on the chart, with empty folders of its own, and returns what it
// prints on each stream.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	path, err := buildHelm()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+filepath.Join(home, "none"))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

var chartDir = filepath.Join(root, "distros/helm/nvsentinel")

// renderings are what template has rendered, by helm's flags: most tests look at the
// same few.
var renderings = struct {
	sync.Mutex
	of map[string]string
}{of: map[string]string{}}

// template renders the chart; with are flags of helm.
func template(t *testing.T, with ...string) (string, error) {
	t.Helper()
	renderings.Lock()
	defer renderings.Unlock()
	flags := strings.Join(with, "\x00")
	if out, ok := renderings.of[flags]; ok {
		return out, nil
	}
	out, problems, err := helm(t, append([]string{"template", "nvsentinel", chartDir, "--namespace", release}, with...)...)
	if err != nil {
		return out, errors.New(problems)
	}
	renderings.of[flags] = out
	return out, nil
}

// file is the flag that names a file of values.
func file(name string) string { return "--values=testdata/" + name + ".yaml" }

// rendered renders the chart with a file of values and decodes it.
func rendered(t *testing.T, with ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := template(t, with...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
}

// as decodes an object into its Go type.
func as[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	text, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	var out T
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return out
}

// workloads are the pod templates by the names of their DaemonSets and Deployments.
func workloads(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
	t.Helper()
	out := map[string]corev1.PodTemplateSpec{}
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment":
			out[o.GetName()] = as[appsv1.Deployment](t, o).Spec.Template
		case "DaemonSet":
			out[o.GetName()] = as[appsv1.DaemonSet](t, o).Spec.Template
		}
	}
	return out
}

// texts are the files of the ConfigMaps, by the ConfigMaps' names.
func texts(t *testing.T, objects []*unstructured.Unstructured) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "ConfigMap" {
			out[o.GetName()] = as[corev1.ConfigMap](t, o).Data
		}
	}
	return out
}
