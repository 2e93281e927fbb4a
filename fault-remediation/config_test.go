package faultremediation

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/config"
)

const completeConfig = `
store = "sqlite:///records.db"
singleHost = true
recoveryTimeout = "45m"

[template]
mountPath = "MOUNT"
fileName = "reboot.yaml"

[remediationActions."RESTART_VM"]
apiGroup = "janitor.dgxc.nvidia.com"
version = "v1alpha1"
kind = "RebootNode"
equivalenceGroup = "restart"
unknownTimeout = "1h"
attempts = {max = 3, window = "12h"}
[remediationActions."RESTART_VM".healthRule.multiMatch.healthy]
matchConditions = [{type = "NodeReady", status = "True"}]
[remediationActions."RESTART_VM".healthRule.multiMatch.unhealthy]
matchConditions = [{type = "NodeReady", status = "False"}]

[eviction]
userNamespaces = [{name = "*", mode = "Immediate"}]
`

// load reads a configuration file as the service does.
func load(t *testing.T, text string, args ...string) (Config, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	reboot := "apiVersion: {{.ApiGroup}}/{{.Version}}\nkind: {{.Kind}}\nspec: {nodeName: {{quote .NodeName}}}\n"
	for name, body := range map[string]string{file: strings.ReplaceAll(text, "MOUNT", dir), filepath.Join(dir, "reboot.yaml"): reboot} {
		if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := defaultConfig()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(t.Output())
	bound, err := config.Bind(flags, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return cfg, bound.Load(file, func(string) (string, bool) { return "", false })
}

func TestCompleteConfig(t *testing.T) {
	cfg, err := load(t, completeConfig, "--dry-run")
	if err != nil {
		t.Fatal(err)
	}
	if !cfg.DryRun || cfg.RecoveryWithin != 45*time.Minute {
		t.Errorf("dry run %v, recovery within %s", cfg.DryRun, cfg.RecoveryWithin)
	}
	p, err := cfg.compile()
	if err != nil {
		t.Fatal(err)
	}
	a, ok := p.Of(record.ActionRestartVM)
	if !ok || a.UnknownTimeout != time.Hour || a.Attempts.Max != 3 || a.Template != "reboot.yaml" {
		t.Errorf("RESTART_VM = %+v", a)
	}
	// The file's actions replace the defaults as a whole.
	if !p.NeedsHuman(record.ActionReplaceVM) {
		t.Error("REPLACE_VM is configured, though the file does not name it")
	}
}

func TestDefaultsNeedOnlyAStore(t *testing.T) {
	cfg, err := load(t, "", "--store=postgres://db/nvsentinel")
	if err != nil {
		t.Fatal(err)
	}
	p, err := cfg.compile()
	if err != nil {
		t.Fatal(err)
	}
	if p.NeedsHuman(record.ActionReplaceVM) || cfg.RecoveryWithin != 30*time.Minute {
		t.Errorf("defaults: %+v", cfg)
	}
	if want := (decision.RepeatOffenderPolicy{Repairs: 3, Window: 30 * 24 * time.Hour}); cfg.policy().RepeatOffender != want {
		t.Errorf("lemons %+v, want %+v", cfg.policy().RepeatOffender, want)
	}
}

func TestMistakesAreStartUpErrors(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no store":                     {"", "store (--store) is empty"},
		"unknown key":                  {completeConfig + "\n[remediationActions.NONSENSE]\ncolour = 1\n", "colour"},
		"workers":                      {"workers = 0\n" + completeConfig, "workers (--workers) is 0"},
		"recovery":                     {strings.Replace(completeConfig, "45m", "0s", 1), "recoveryTimeout"},
		"eviction mode":                {strings.Replace(completeConfig, "Immediate", "Sometimes", 1), "eviction: "},
		"lemon of one":                 {completeConfig + "\n[repeatOffender]\nthreshold = 1\n", "repeatOffender.threshold is 1: must be 0 (disabled) or 2 to 10"},
		"too many":                     {completeConfig + "\n[repeatOffender]\nthreshold = 11\n", "repeatOffender.threshold is 11"},
		"longer than a record is kept": {completeConfig + "\n[repeatOffender]\nwindow = \"721h\"\n", "repeatOffender.window is 721h0m0s: must be above 0 and at most 720h0m0s"},
		"no window":                    {completeConfig + "\n[repeatOffender]\nwindow = \"0s\"\n", "repeatOffender.window is 0s"},
		"kept without":                 {completeConfig + "\n[repeatOffender]\nthreshold = 0\nrequireManualIntervention = true\n", "repeatOffender.requireManualIntervention is true and repeatOffender.threshold is"},
		"file is missing":              {strings.Replace(completeConfig, "reboot.yaml", "other.yaml", 1), "reading other.yaml"},
		"no mount path":                {strings.Replace(completeConfig, `mountPath = "MOUNT"`, "", 1), "template.mountPath is empty"},
		"leaves no mount":              {strings.Replace(completeConfig, "reboot.yaml", "../../secret.yaml", 1), "reading ../../secret.yaml"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// resetBy is a configuration with partialDrainEnabled in which this object
// carries out COMPONENT_RESET.
func resetBy(group, kind, equivalence string) string {
	return strings.Replace(completeConfig, "[eviction]", `[remediationActions."COMPONENT_RESET"]
apiGroup = "`+group+`"
version = "v1"
kind = "`+kind+`"
equivalenceGroup = "`+equivalence+`"
completeConditionType = "Complete"

[eviction]
partialDrainEnabled = true`, 1)
}

func TestAPartialDrainNeedsARepairOfTheGPUAlone(t *testing.T) {
	const janitor, partial = "janitor.dgxc.nvidia.com", "[eviction]\npartialDrainEnabled = true\n"
	tests := map[string]struct{ text, want string }{
		"by default a reset reboots":     {partial, "kind RebootNode"},
		"reboots":                        {resetBy(janitor, "RebootNode", "reset"), "kind RebootNode"},
		"replaces":                       {resetBy(janitor, "TerminateNode", "reset"), "kind TerminateNode"},
		"cures by the same as a restart": {resetBy("example.com", "Restart", "restart"), `equivalenceGroup "restart", the group of RESTART_VM`},
		"resets the GPU":                 {resetBy("example.com", "GPUReset", "reset"), ""},
		"the janitor resets the GPU":     {resetBy(janitor, "GPUReset", "reset"), ""},
		"whole drains":                   {strings.Replace(resetBy(janitor, "RebootNode", "reset"), "partialDrainEnabled = true", "", 1), ""},
		"no reset is configured":         {completeConfig + "partialDrainEnabled = true\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tt.text, "--store=postgres://db/nvsentinel")
			if tt.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), "eviction.partialDrainEnabled") || !strings.Contains(err.Error(), `remediationActions."COMPONENT_RESET"`) {
				t.Errorf("error %v, want one that names both keys and %q", err, tt.want)
			}
		})
	}
}

// The example of examples/gpu-reset is a configuration, and its template makes of a
// fault the object of the janitor: of the GPUs that it names, or of all.
func TestTheExampleResetsTheGPUsOfAFault(t *testing.T) {
	text, err := os.ReadFile("../examples/gpu-reset/fault-remediation.toml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := load(t, string(text), "--store=postgres://db/nvsentinel")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := cfg.compile()
	if err != nil {
		t.Fatal(err)
	}
	const a, b = "GPU-11111111-d5ea-c752-ddf3-c4453e44d3f7", "GPU-22222222-d5ea-c752-ddf3-c4453e44d3f7"
	for name, tt := range map[string]struct {
		entities []record.Entity
		group    string
		spec     map[string]any
	}{
		"one": {
			[]record.Entity{{EntityType: "PCI", EntityValue: "0000:18:00"}, {EntityType: "GPU_UUID", EntityValue: a}, {EntityType: "GPU", EntityValue: "0"}},
			"reset-" + a, map[string]any{"nodeName": "n", "selector": map[string]any{"uuids": []any{a}}},
		},
		"two": {
			[]record.Entity{{EntityType: "GPU_UUID", EntityValue: a}, {EntityType: "GPU_UUID", EntityValue: b}},
			"reset", map[string]any{"nodeName": "n", "selector": map[string]any{"uuids": []any{a, b}}},
		},
		"all": {[]record.Entity{{EntityType: "NVSWITCH", EntityValue: "0"}}, "reset", map[string]any{"nodeName": "n"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := record.Record{ID: "r1", Event: record.Event{NodeName: "n", RecommendedAction: record.ActionComponentReset, EntitiesImpacted: tt.entities}}
			repair, _ := policy.Of(record.ActionComponentReset)
			repair = repair.For(r)
			made, err := repair.Render(r, record.Attempt{Name: "n-1", Group: repair.Group, Session: "s", Ordinal: 1})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.spec, made.Object["spec"]); diff != "" || repair.Group != tt.group || made.GetKind() != "GPUReset" {
				t.Errorf("a %s of group %s, want one of %s; spec (-want +got):\n%s", made.GetKind(), repair.Group, tt.group, diff)
			}
		})
	}
}

func TestAnEntityScopeIsOfAResetOnly(t *testing.T) {
	for want, text := range map[string]string{
		"RESTART_VM acts on the complete machine": strings.Replace(completeConfig, `equivalenceGroup = "restart"`, `equivalenceGroup = "restart"
impactedEntityScope = "GPU_UUID"`, 1),
		`"PCI" is not GPU_UUID`: strings.Replace(resetBy("example.com", "GPUReset", "reset"), `equivalenceGroup = "reset"`, `equivalenceGroup = "reset"
impactedEntityScope = "PCI"`, 1),
	} {
		if _, err := load(t, text, "--store=postgres://db/nvsentinel"); err == nil || !strings.Contains(err.Error(), "impactedEntityScope") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
