package faultquarantine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
)

// examples is where the rule sets of docs/reference/rule-sets.md are.
const examples = "../examples/rule-sets"

// verdictOf is the verdict on one fault of a node with these labels, under the rule sets
// of a file, in one line.
func verdictOf(t *testing.T, file string, e record.Event, labels map[string]any) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, file))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := rulematch.Compile(load(t, string(text)).rules())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	machine := record.NodeIdentity{UID: "u", ProviderID: "p", BootID: "b"}
	e.NodeName, e.ProcessingStrategy = "n", record.Process
	j := decision.Evaluate(
		decision.View{
			Name:    "n",
			Node:    &decision.Node{Identity: machine, Created: now},
			Pending: []record.Record{{ID: "r", CreatedAt: now, Append: 1, Node: machine, Event: e}},
		},
		decision.Policy{Retention: time.Hour, Match: func(e record.Event) rulematch.Ruling {
			return rules.Decide(e, map[string]any{"metadata": map[string]any{"name": "n", "labels": labels}})
		}}, now)
	if len(j.Changed) != 1 {
		t.Fatalf("%d records are judged: %s", len(j.Changed), j.Waiting)
	}
	return sentence(j.Changed[0].Status.QuarantineVerdict)
}

func sentence(v *record.Verdict) string {
	parts := []string{string(v.Reason)}
	if len(v.RuleSets) > 0 {
		parts = append(parts, fmt.Sprintf("by %q:", v.RuleSets))
	}
	if v.Effects.Cordon {
		parts = append(parts, "cordon")
	}
	for _, x := range v.Effects.Taints {
		parts = append(parts, fmt.Sprintf("taint %s=%s:%s", x.Key, x.Value, x.Effect))
	}
	for _, x := range v.Effects.Labels {
		parts = append(parts, fmt.Sprintf("label %s=%s", x.Key, x.Value))
	}
	return strings.Join(parts, " ")
}

// TestTheExamplesOfRuleSets: what docs/reference/rule-sets.md describes of each file holds.
func TestTheExamplesOfRuleSets(t *testing.T) {
	xid := record.Event{Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true, ErrorCode: []string{"79"}}
	sxid := record.Event{Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsSXIDError", IsFatal: true, ErrorCode: []string{"20034"}}
	mild := record.Event{Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", ErrorCode: []string{"13"}}
	dcgm := record.Event{Agent: "gpu-health-monitor", ComponentClass: "GPU", CheckName: "GpuMemWatch", IsFatal: true, ErrorCode: []string{"DCGM_FR_ROW_REMAP_FAILURE"}}
	storage := record.Event{Agent: "kubernetes-object-monitor", ComponentClass: "Node", CheckName: "StorageDown", IsFatal: true}
	slow := record.Event{Agent: "kubernetes-object-monitor", ComponentClass: "Node", CheckName: "StorageDown"}
	lab, training := map[string]any{"example.com/pool": "lab"}, map[string]any{"example.com/tier": "training"}
	const noRule = "NoRuleMatched"
	seen := map[string]bool{}
	for _, tc := range []struct {
		file   string
		event  record.Event
		labels map[string]any
		want   string
	}{
		{"built-in.toml", xid, nil, `Matched by ["Syslog fatal error ruleset"]: cordon`},
		{"built-in.toml", mild, nil, noRule},
		{"fatal-xid-only.toml", xid, nil, `Matched by ["fatal XID"]: cordon`},
		{"fatal-xid-only.toml", mild, nil, noRule},
		{"fatal-xid-only.toml", dcgm, nil, noRule},
		{"taint-instead-of-cordon.toml", dcgm, nil, `Matched by ["fatal GPU fault"]: taint example.com/gpu-fault=fatal:NoSchedule`},
		{"taint-instead-of-cordon.toml", storage, nil, noRule},
		{"quiet-pool.toml", sxid, lab, noRule},
		{"quiet-pool.toml", xid, lab, `Matched by ["fatal, but for SXIDs of the lab"]: cordon`},
		{"quiet-pool.toml", sxid, nil, `Matched by ["fatal, but for SXIDs of the lab"]: cordon`},
		{"quiet-pool.toml", sxid, map[string]any{"example.com/pool": "prod"}, `Matched by ["fatal, but for SXIDs of the lab"]: cordon`},
		{"by-node-label.toml", xid, nil, `Matched by ["everywhere"]: taint example.com/gpu-fault=fatal:NoSchedule label example.com/faulty=gpu`},
		{"by-node-label.toml", dcgm, training, `Matched by ["training" "everywhere"]: taint example.com/gpu-fault=fatal:NoExecute label example.com/faulty=gpu`},
		{"by-node-label.toml", mild, training, noRule},
		{"object-monitor-policy.toml", storage, nil, `Matched by ["storage is down"]: cordon`},
		{"object-monitor-policy.toml", slow, nil, `Matched by ["storage is slow"]: taint example.com/storage=slow:PreferNoSchedule label example.com/storage=slow`},
		{"object-monitor-policy.toml", xid, nil, noRule},
	} {
		seen[tc.file] = true
		if got := verdictOf(t, tc.file, tc.event, tc.labels); got != tc.want {
			t.Errorf("%s, %s %v on a node with %v:\n %s\nwant\n %s", tc.file, tc.event.CheckName, tc.event.ErrorCode, tc.labels, got, tc.want)
		}
	}
	files, err := filepath.Glob(filepath.Join(examples, "*"))
	if err != nil || len(files) != len(seen) {
		t.Errorf("the table has %d files, %s has %q (%v)", len(seen), examples, files, err)
	}
}

// TestTheBuiltInRuleSetsAreWrittenOut: an operator who begins with the example begins
// with what was active.
func TestTheBuiltInRuleSetsAreWrittenOut(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examples, "built-in.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rulematch.Default(), load(t, string(text)).rules()); diff != "" {
		t.Errorf("built-in (-code +example):\n%s", diff)
	}
}

// TestNoRuleSetsAreNotTheBuiltInOnes: an empty list is a list.
func TestNoRuleSetsAreNotTheBuiltInOnes(t *testing.T) {
	if sets := load(t, "ruleSets = []").rules(); len(sets) != 0 {
		t.Errorf("%d rule sets in force", len(sets))
	}
	names := func(sets []rulematch.Set) (out []string) {
		for _, s := range sets {
			out = append(out, s.Name)
		}
		return out
	}
	if got := names(load(t, "").rules()); !slices.Equal(got, names(rulematch.Default())) {
		t.Errorf("without the key: %q", got)
	}
}

// TestTheCommentOfTheChart: what values.yaml shows is a configuration.
func TestTheCommentOfTheChart(t *testing.T) {
	values, err := os.ReadFile("../distros/helm/nvsentinel/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(values), "\n  #   config: |\n  #     [[ruleSets]]")
	text, _, _ := strings.Cut("[[ruleSets]]"+after, "\n  config:")
	if sets := load(t, strings.ReplaceAll(text, "\n  #     ", "\n")).rules(); !found || len(sets) != 1 || sets[0].Taint == nil {
		t.Errorf("values.yaml shows no rule set: %+v", sets)
	}
}
