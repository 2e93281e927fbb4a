package janitor

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/internal/config"
)

// TestControlPlaneIsExcluded: a file that sets something else keeps the default; only one
// that names the list replaces it.
func TestControlPlaneIsExcluded(t *testing.T) {
	control := labels.Set{"node-role.kubernetes.io/control-plane": ""}
	for text, want := range map[string]bool{
		"":                              true,
		"[global]\ntimeout = \"30m\"\n": true,
		"[rebootNodeController.nodes]\nexclusions = [\"keep\"]":                              true,
		"[global.nodes]\nexclusions = [\"keep\", \"node-role.kubernetes.io/control-plane\"]": true,
		"[global.nodes]\nexclusions = []":                                                    false,
		"[global.nodes]\nexclusions = [\"keep\"]":                                            false,
	} {
		file := filepath.Join(t.TempDir(), "janitor.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := defaultConfig()
		c.Global.CSPPluginHost = "plugin:9090"
		set, err := config.Bind(flag.NewFlagSet("janitor", flag.ContinueOnError), &c)
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Load(file, os.LookupEnv); err != nil {
			t.Fatal(err)
		}
		for kind, controller := range map[string]nodeController{"reboot": c.reboot(), "terminate": c.terminate()} {
			selectors, err := controller.excluded()
			if got := slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(control) }); err != nil || got != want {
				t.Errorf("%q: %s excludes the control plane: %v, %v; want %v", text, kind, got, err, want)
			}
		}
	}
}
