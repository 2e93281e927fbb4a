package action_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
)

// custom is an action of a rank with keys of its own.
func custom(name, kind, keys string) string {
	return "[remediationActions.\"" + name + "\"]\nversion = 'v1'\nkind = '" + kind + "'\ncompleteConditionType = 'Done'\ntemplate = \"apiVersion: v1\\nkind: " + kind + "\"\n" + keys + "\n"
}

func policyOf(t *testing.T, doc string) action.Policy {
	t.Helper()
	p, err := compile(t, doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestActsOnNode: by the janitor's kinds, or by the group of an action that does.
func TestActsOnNode(t *testing.T) {
	p := policyOf(t, valid+
		custom("REBORN", "Cycle", "rank = 2\nequivalenceGroup = 'restart'")+
		custom("WIPE", "RebootNode", "rank = 2\nequivalenceGroup = 'wipe'"))
	def, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		policy action.Policy
		name   record.Action
		want   string
	}{
		{def, record.ActionRestartVM, "kind RebootNode"},
		{def, record.ActionReplaceVM, "kind TerminateNode"},
		{def, record.ActionComponentReset, "kind RebootNode"},
		{def, "NOBODYS", ""},
		{p, "REBORN", `equivalenceGroup "restart", the group of RESTART_VM`},
		{p, "WIPE", ""}, // a kind of that name, and not the janitor's
	} {
		if why, certainly := tt.policy.ActsOnNode(tt.name); why != tt.want || certainly != (tt.want != "") {
			t.Errorf("%s: %q %t, want %q", tt.name, why, certainly, tt.want)
		}
	}
}

// TestFor: a repair of one entity has a group of its own.
func TestFor(t *testing.T) {
	type entity = record.Entity
	for name, tt := range map[string]struct {
		scope    string
		entities []entity
		want     string
	}{
		"no scope":            {"", []entity{{EntityType: "", EntityValue: "GPU-1"}}, "g"},
		"one GPU":             {"GPU_UUID", []entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}}, "g-GPU-1"},
		"one GPU twice":       {"GPU_UUID", []entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}, {EntityType: "GPU_UUID", EntityValue: "GPU-1"}}, "g-GPU-1"},
		"one GPU and its bus": {"GPU_UUID", []entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}, {EntityType: "PCI", EntityValue: "0000:3b:00"}}, "g-GPU-1"},
		"two GPUs":            {"GPU_UUID", []entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}, {EntityType: "GPU_UUID", EntityValue: "GPU-2"}}, "g"},
		"no GPU":              {"GPU_UUID", []entity{{EntityType: "PCI", EntityValue: "0000:3b:00"}}, "g"},
	} {
		a := action.Action{Group: "g", EntityScope: tt.scope}
		if got := a.For(record.Record{Event: record.Event{EntitiesImpacted: tt.entities}}).Group; got != tt.want {
			t.Errorf("%s: group %s, want %s", name, got, tt.want)
		}
	}
}

// TestCoversAndCures: what one action's success, or any boot, is worth to another.
func TestCoversAndCures(t *testing.T) {
	p := policyOf(t, valid+
		custom("CYCLE", "Cycle", "rank = 2\nequivalenceGroup = 'power'")+
		custom("SWAP", "Swap", "rank = 2\nequivalenceGroup = 'swap'\nsupersedingEquivalenceGroups = ['power']")+
		custom("SPLICE", "Splice", "rank = 1\nequivalenceGroup = 'swap'\nsupersedingEquivalenceGroups = ['power']")+
		custom("REPLACE_VM", "Replace", "equivalenceGroup = 'replace'"))
	for _, tt := range []struct {
		by, name record.Action
		want     bool
	}{
		{"CYCLE", "RESTART_VM", true},
		{"CYCLE", "SWAP", true},
		{"SWAP", "SPLICE", true},
		{"SPLICE", "SWAP", false},
		{"RESTART_VM", "SWAP", false},
		{"REPLACE_VM", "SWAP", true},
		{"CYCLE", "REPLACE_VM", false},
		{"REPLACE_VM", "CONTACT_SUPPORT", false},
	} {
		if got := p.Covers(tt.by, tt.name); got != tt.want {
			t.Errorf("%s covers %s: %t, want %t", tt.by, tt.name, got, tt.want)
		}
	}
	for name, want := range map[record.Action]bool{"RESTART_VM": true, "CYCLE": true, "SWAP": false, "REPLACE_VM": false, "NOBODYS": false} {
		if got := p.CuredByReboot(name); got != want {
			t.Errorf("a reboot cures %s: %t, want %t", name, got, want)
		}
	}
	p = policyOf(t, valid+"supersedingEquivalenceGroups = ['power']\n"+custom("CYCLE", "Cycle", "rank = 2\nequivalenceGroup = 'power'"))
	if !p.CuredByReboot(record.ActionRestartVM) {
		t.Error("a reboot cures what asks for one, whatever supersedes it")
	}
}
