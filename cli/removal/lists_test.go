package removal

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const chart = "../../distros/helm/nvsentinel/"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestKindsOfServicesAreKnown: the Leases and the ConfigMap that the chart lets the
// services make are those that are removed.
func TestKindsOfServicesAreKnown(t *testing.T) {
	var made, known []string
	for _, m := range regexp.MustCompile(`'(leases|configmaps)/[^/']+/([^/']+)'`).FindAllStringSubmatch(read(t, chart+"manifests/names.yaml"), -1) {
		made = append(made, m[1]+" "+m[2])
	}
	for _, l := range leases {
		known = append(known, "leases "+l[0]+"-"+l[1])
	}
	known = append(known, "configmaps "+monitorState)
	slices.Sort(made)
	slices.Sort(known)
	if diff := cmp.Diff(made, known); diff != "" {
		t.Errorf("(-may be made +known):\n%s", diff)
	}
}

// TestKindsOfTheChartAreKnown: every kind that the chart defines, and no other.
func TestKindsOfTheChartAreKnown(t *testing.T) {
	known := map[string]bool{"NodeHealthCheck": true}
	for kind := range byPeople {
		known[kind] = true
	}
	for _, pattern := range []string{"crds/*.yaml", "manifests/crds/*.yaml"} {
		files, err := filepath.Glob(chart + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range files {
			var d struct {
				Spec struct {
					Group string
					Names struct{ Kind string }
				}
			}
			if err := yaml.Unmarshal([]byte(read(t, path)), &d); err != nil {
				t.Fatal(err)
			}
			if kind := d.Spec.Names.Kind; !ProjectGroup(d.Spec.Group, kind) || !known[kind] {
				t.Errorf("%s: kind %s of %s is not known", path, kind, d.Spec.Group)
			}
			delete(known, d.Spec.Names.Kind)
		}
	}
	if len(known) > 0 {
		t.Errorf("the chart does not define %v", known)
	}
}

// TestFoldersAreThoseOfTheChart: as its values have them.
func TestFoldersAreThoseOfTheChart(t *testing.T) {
	var values struct {
		HostPaths struct{ Run, State string }
	}
	if err := yaml.Unmarshal([]byte(read(t, chart+"values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{values.HostPaths.Run, values.HostPaths.State}, Folders); diff != "" {
		t.Errorf("(-values +here):\n%s", diff)
	}
}

// TestEveryReasonIsExplained: but for what is simply ours.
func TestEveryReasonIsExplained(t *testing.T) {
	source := read(t, "removal.go")
	reasons := regexp.MustCompile(`Reason = "(\w+)"`).FindAllStringSubmatch(source, -1)
	if len(reasons) < 10 {
		t.Fatalf("%d reasons", len(reasons))
	}
	for _, m := range reasons {
		if text := Reason(m[1]).Text(); (text == "") != (m[1] == string(Managed)) || strings.HasPrefix(text, m[1]) {
			t.Errorf("%s: %q", m[1], text)
		}
	}
}
