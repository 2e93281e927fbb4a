package kubernetesobjectmonitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvidia/nvsentinel/internal/daemon"
)

const manifests = "../../distros/helm/nvsentinel/manifests/"

// find decodes the object of a kind and name in a stream of YAML documents.
func find[T any](t *testing.T, stream []byte, kind, name string) T {
	t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096); ; {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			continue
		}
		var subject metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &subject); err != nil {
			t.Fatal(err)
		}
		if subject.Kind == kind && subject.Name == name {
			var out T
			if err := json.Unmarshal(raw, &out); err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	panic("unreachable")
}

func file(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTheChartsRightsAreThoseOfItsPolicies: the policies of the manifest have the
// names of the ADR's (they ask for more: who wrote the object), and the role is what
// the subcommand prints for them.
func TestTheChartsRightsAreThoseOfItsPolicies(t *testing.T) {
	deployed := find[corev1.ConfigMap](t, file(t, manifests+"kubernetes-object-monitor/deployment.yaml"), "ConfigMap", "kubernetes-health-monitor-config")
	policies := deployed.Data["policies.toml"]
	names := regexp.MustCompile(`(?m)^name = .*$`)
	if diff := cmp.Diff(names.FindAllString(example(t), -1), names.FindAllString(policies, -1)); diff != "" {
		t.Errorf("the manifest's policies are not those of the example:\n%s", diff)
	}
	path := filepath.Join(t.TempDir(), "policies.toml")
	if err := os.WriteFile(path, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed, problems bytes.Buffer
	if code := runRights([]string{"--policy-config-path", path}, &printed, &problems); code != 0 {
		t.Fatal(problems.String())
	}
	const role = "nvsentinel-kubernetes-object-monitor"
	want := find[rbacv1.ClusterRole](t, printed.Bytes(), "ClusterRole", role)
	got := find[rbacv1.ClusterRole](t, file(t, manifests+"rbac.yaml"), "ClusterRole", role)
	if diff := cmp.Diff(want.Rules, got.Rules); diff != "" {
		t.Errorf("rbac.yaml and what the policies need (-need +rbac.yaml):\n%s", diff)
	}
}

// get asks a running monitor.
func get(t *testing.T, r *daemon.Running, path string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func awaitReadiness(t *testing.T, r *daemon.Running, code int, detail string) {
	t.Helper()
	var got int
	var body string
	poll(t, func() bool {
		got, body = get(t, r, "/readyz")
		return got == code && strings.Contains(body, detail)
	}, func() string { return fmt.Sprintf("readiness is %d %s, want %d with %q", got, body, code, detail) })
}

// TestItRunsUnderExactlyTheRightsOfItsPolicies on an API server that enforces them. Without
// one of them it reports which one is missing, and the other policies work.
func TestItRunsUnderExactlyTheRightsOfItsPolicies(t *testing.T) {
	watched := strings.NewReplacer(`"Node"`+"\n[policies.predicate]", `"Service"`+"\nnamespace = \"kom-rights\"\n[policies.predicate]",
		"[policies.healthEvent]", "[policies.nodeAssociation]\nexpression = \"lookup('v1', 'Endpoints', 'kom-rights', resource.metadata.name).metadata.name\"\n[policies.healthEvent]").Replace(broken("Services", "kom-rights"))
	w := newWorld(t, broken("Beside", "kom-rights")+watched)
	if err := w.cluster.Apply(t.Context(), bytes.NewReader(file(t, manifests+"rbac.yaml"))); err != nil {
		t.Fatal(err)
	}
	client := w.cluster.Client()
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kom-rights"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// What another test left there; without the name there is no right.
	_ = client.CoreV1().ConfigMaps("nvsentinel").Delete(t.Context(), defaultConfig.State, metav1.DeleteOptions{})
	// An account that has what the monitor itself needs, and no kind to read.
	kubeconfig, err := w.cluster.ServiceAccountKubeconfig(t.Context(), "nvsentinel", "kom-rights", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kom-rights"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kubernetes-object-monitor"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "kom-rights", Namespace: "nvsentinel"}}}
	if _, err := client.RbacV1().RoleBindings("nvsentinel").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var printed, problems bytes.Buffer
	args := []string{"--policy-config-path", w.policies, "--kubeconfig", w.cluster.AdminKubeconfig(), "--service-account", "kom-rights"}
	if code := runRights(args, &printed, &problems); code != 0 || strings.Contains(printed.String(), "plural") {
		t.Fatalf("exit code %d\n%s%s", code, problems.String(), printed.String())
	}
	lacking := strings.Replace(printed.String(), "  - endpoints\n", "", 1)
	if lacking == printed.String() {
		t.Fatalf("no right to read what is looked up:\n%s", printed.String())
	}
	if err := w.cluster.Apply(t.Context(), strings.NewReader(lacking)); err != nil {
		t.Fatal(err)
	}
	w.node("kom-rights-1", map[string]string{"test/broken": "true"})
	if _, err := client.CoreV1().Endpoints("kom-rights").Create(t.Context(), &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "kom-rights-2"}}, metav1.CreateOptions{}); err != nil { //nolint:staticcheck // any kind with an irregular plural serves
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kom-rights-2", Labels: map[string]string{"test/broken": "true"}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := client.CoreV1().Services("kom-rights").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := daemon.RunForTest(t, "kubernetes-object-monitor", defaultConfig, build, "--kubeconfig", kubeconfig,
		"--platform-connector-socket", w.connector.Target(), "--policy-config-path", w.policies, "--leader-elect-namespace", "nvsentinel")
	awaitReadiness(t, r, http.StatusServiceUnavailable, `cannot list resource \"endpoints\"`)
	w.expect("fault Beside kom-rights-1 v1/Node kom-rights-1")
	if err := w.cluster.Apply(t.Context(), bytes.NewReader(printed.Bytes())); err != nil {
		t.Fatal(err)
	}
	w.expect("fault Beside kom-rights-1 v1/Node kom-rights-1", "fault Services kom-rights-2 v1/Service kom-rights-2")
	awaitReadiness(t, r, http.StatusOK, "all kinds are watched")
}

// TestAPolicyThatMovesToAnotherNamespace recovers what it found in the one before.
func TestAPolicyThatMovesToAnotherNamespace(t *testing.T) {
	w := newWorld(t, "")
	in := func(namespace string) string {
		return strings.NewReplacer(`"Node"`+"\n[policies.predicate]", `"ConfigMap"`+"\nnamespace = \""+namespace+"\"\n[policies.predicate]",
			"[policies.healthEvent]", "[policies.nodeAssociation]\nexpression = \"resource.metadata.name\"\n[policies.healthEvent]").Replace(broken("Moves", "kom-moves"))
	}
	other := w.cluster.Namespace(t)
	for namespace, name := range map[string]string{w.namespace: "kom-moves-1", other: "kom-moves-2"} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test/broken": "true"}}}
		if _, err := w.cluster.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.write(in(w.namespace))
	w.run()
	w.expect("fault Moves kom-moves-1 v1/ConfigMap kom-moves-1")
	w.write(in(other))
	w.expect("fault Moves kom-moves-1 v1/ConfigMap kom-moves-1", "recovery Moves kom-moves-1 v1/ConfigMap kom-moves-1",
		"fault Moves kom-moves-2 v1/ConfigMap kom-moves-2")
}
