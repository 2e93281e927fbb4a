package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

// everything enables every workload, with a gateway's certificate that is not made again
// by each rendering.
const everything = `
store: {secretName: nvsentinel-store}
podMonitor: {enabled: true}
serviceMonitor: {enabled: true}
prometheusRule: {enabled: true}
dashboards: {enabled: true}
cli: {enabled: true}
platformConnectorsGateway: {tls: {secretName: gateway-tls, caConfigMapName: gateway-ca}}
platformConnectorsCluster: {coverage: {enabled: true}}
gpuHealthMonitor: {enabled: true}
metadataCollector: {enabled: true}
nicHealthMonitor: {enabled: true}
cspHealthMonitor: {enabled: true, provider: aws, clusterName: c, storeSecretName: s}
labeler: {enabled: true}
eventExporter: {enabled: true, config: "[exporter]"}
janitor: {enabled: true, cspPlugin: {host: csp-plugin-aws}, gpuReset: {enabled: true, image: r:1}}
nodeHealthCheck: {enabled: true, installCRD: true, bridge: true}
repairChain: {enabled: true}
cspPluginAws: {enabled: true}
cspPluginAzure: {enabled: true}
cspPluginGcp: {enabled: true}
cspPluginOci: {enabled: true}
cspPluginKwok: {enabled: true}
`

// defaults are the chart's own values.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// valuesFile writes values into a file and returns helm's flag for it.
func valuesFile(t *testing.T, values map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "--values=" + path
}

// TestDefaultsForNulls: what templates/_defaults.tpl fills in is values.yaml.
func TestDefaultsForNulls(t *testing.T) {
	text, err := yaml.Marshal(defaults(t))
	if err != nil {
		t.Fatal(err)
	}
	const head = "# The values of values.yaml, for templates/_defaults.tpl; make generate writes this.\n"
	reference.Check(t, "distros/helm/nvsentinel/defaults.yaml", head+string(text))
}

// withoutDefault are the keys that a null removes, as their comments state.
var withoutDefault = []string{"resources", "nodeSelector", "tolerations", "updateStrategy", "systemNamespaces"}

// taken is a map of values with every other one set to null but for those of keep, and
// how many that are.
func taken(from, set map[string]any, keep []string) (map[string]any, int) {
	out, n := maps.Clone(set), 0
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range from {
		already, there := set[key]
		parts, isMap := value.(map[string]any)
		switch within, _ := already.(map[string]any); {
		case isMap && len(parts) > 0 && !slices.Contains(withoutDefault, key):
			var more int
			out[key], more = taken(parts, within, keep)
			n += more
		case !there && !slices.Contains(keep, key):
			out[key] = nil
			n++
		}
	}
	return out, n
}

// broken is what a template makes of nothing.
var broken = regexp.MustCompile(`%!|<nil>|<no value>|(?m)--[-a-z]+="?$|: null$|^ +- null$`)

// TestNulls goes through every value: a null value becomes its default, or is absent where its
// comment states it, and the null itself is never rendered.
func TestNulls(t *testing.T) {
	want := rendered(t, valuesFile(t, parse(t, everything)))
	for name, tc := range map[string]struct {
		keep    []string
		atLeast int
	}{"those with a default": {withoutDefault, 350}, "all": {nil, 440}} {
		t.Run(name, func(t *testing.T) {
			with, n := taken(defaults(t), parse(t, everything), tc.keep)
			if n < tc.atLeast {
				t.Errorf("%d values were taken away, want %d", n, tc.atLeast)
			}
			text, err := template(t, valuesFile(t, with))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.SplitSeq(text, "\n") {
				if broken.MatchString(line) && !strings.Contains(line, "--gke-installer-app-label") {
					t.Errorf("a null makes %q", line)
				}
			}
			workloads(t, decode(t, text))
			if diff := cmp.Diff(want, decode(t, text)); len(tc.keep) > 0 && diff != "" {
				t.Errorf("the objects (-defaults +nulls):\n%s", diff)
			}
		})
	}
}

// TestPartsThatAreNull: a whole part of the values that is null is its defaults.
func TestPartsThatAreNull(t *testing.T) {
	want := workloads(t, rendered(t, file("store")))
	for part, value := range defaults(t) {
		if _, isMap := value.(map[string]any); !isMap || part == "store" {
			continue
		}
		t.Run(part, func(t *testing.T) {
			if diff := cmp.Diff(want, workloads(t, rendered(t, file("store"), "--set="+part+"=null"))); diff != "" {
				t.Errorf("the pods (-defaults +null):\n%s", diff)
			}
		})
	}
}
