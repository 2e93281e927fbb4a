package chart

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestViewers: who is named gets the roles of docs/reference/cli.md, and nobody else anything.
func TestViewers(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if text == nil {
		t.Fatal("docs/reference/cli.md has no roles")
	}
	objects := rendered(t, file("all"))
	for one := range strings.SplitSeq(string(text[1]), "\n---\n") {
		want := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(one), &want.Object); err != nil {
			t.Fatal(err)
		}
		got := find(objects, want.GetKind(), want.GetName())
		if got == nil {
			t.Errorf("%s %s is not there", want.GetKind(), want.GetName())
			continue
		}
		if diff := cmp.Diff(want.Object["rules"], got.Object["rules"]); diff != "" || (got.GetNamespace() == "") != (want.GetNamespace() == "") {
			t.Errorf("%s in namespace %q (-page +chart):\n%s", want.GetKind(), got.GetNamespace(), diff)
		}
		binding := find(objects, want.GetKind()+"Binding", want.GetName())
		subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
		if diff := cmp.Diff([]any{map[string]any{"kind": "Group", "name": "gpu-operators", "apiGroup": "rbac.authorization.k8s.io"}}, subjects); diff != "" {
			t.Errorf("subjects of %s (-want +got):\n%s", binding.GetKind(), diff)
		}
	}
	for _, o := range rendered(t, file("store")) {
		if o.GetName() == "nvsentinel-viewer" {
			t.Errorf("%s is there without viewers", o.GetKind())
		}
	}
}

// TestInspectAddress: the command line finds the port by its name; without an address
// there is none, and one that others could reach is refused.
func TestInspectAddress(t *testing.T) {
	for set, want := range map[string]string{
		"": "--inspect-address=127.0.0.1:9446 9446", "=127.0.0.1:9999": "--inspect-address=127.0.0.1:9999 9999", "=": "--inspect-address= ",
	} {
		args := []string{file("store")}
		if set != "" {
			args = append(args, "--set=platformConnectorsGateway.inspectAddress"+set)
		}
		c := workloads(t, rendered(t, args...))["platform-connectors-gateway"].Spec.Containers[0]
		got := ""
		for _, a := range c.Args {
			if strings.HasPrefix(a, "--inspect-address") {
				got = a + " "
			}
		}
		for _, p := range c.Ports {
			if p.Name == "inspect" {
				got += fmt.Sprint(p.ContainerPort)
			}
		}
		if got != want {
			t.Errorf("with %q: %q, want %q", set, got, want)
		}
	}
	if _, err := template(t, file("store"), "--set=platformConnectorsGateway.inspectAddress=0.0.0.0:9446"); err == nil || !strings.Contains(err.Error(), "inspectAddress") {
		t.Errorf("an address that others reach: %v, want it refused", err)
	}
}
