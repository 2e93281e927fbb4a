package action_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

type file struct {
	Template           action.Templates `toml:"template"`
	RemediationActions action.Configs   `toml:"remediationActions"`
}

// compile reads a TOML document with strict keys; files are served from a map.
func compile(t *testing.T, doc string, files map[string]string) (action.Policy, error) {
	t.Helper()
	var f file
	md, err := toml.Decode(doc, &f)
	if err != nil {
		return action.Policy{}, err
	}
	if keys := md.Undecoded(); len(keys) > 0 {
		return action.Policy{}, fmt.Errorf("unknown key %s", keys[0])
	}
	return action.Compile(f.RemediationActions, f.Template, func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, fmt.Errorf("no file %s", name)
	})
}

const valid = `
[remediationActions."RESTART_VM"]
apiGroup = "example.com"
version = "v1"
kind = "Rebirth"
equivalenceGroup = "restart"
completeConditionType = "Done"
template = '''
apiVersion: example.com/v1
kind: Rebirth
spec: {nodeName: {{ quote .NodeName }}}
'''
`

// power is an action that valid can point to.
const power = `
[remediationActions."POWER_CYCLE"]
version = "v1"
kind = "Cycle"
rank = 2
equivalenceGroup = 'power'
completeConditionType = "Done"
template = "apiVersion: v1\nkind: Cycle"
`

func TestDefaults(t *testing.T) {
	p, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatalf("compiling the defaults: %v", err)
	}
	tests := map[record.Action]struct {
		kind, group, condition string
		rank                   int
	}{
		record.ActionComponentReset: {"RebootNode", "restart", "NodeReady", 1},
		record.ActionRestartVM:      {"RebootNode", "restart", "NodeReady", 2},
		record.ActionRestartBM:      {"RebootNode", "restart", "NodeReady", 2},
		record.ActionReplaceVM:      {"TerminateNode", "terminate", "NodeTerminated", 3},
	}
	if got := len(p.All()); got != len(tests) {
		t.Errorf("%d default actions, want %d", got, len(tests))
	}
	for name, want := range tests {
		a, ok := p.Of(name)
		if !ok {
			t.Errorf("%s is not configured", name)
			continue
		}
		if a.GVK.Kind != want.kind || a.Group != want.group || a.Rank != want.rank || p.NeedsHuman(name) {
			t.Errorf("%s is %s of group %s, rank %d, human %v", name, a.GVK.Kind, a.Group, a.Rank, p.NeedsHuman(name))
		}
		if a.UnknownTimeout != 40*time.Minute || a.Attempts != (action.Attempts{Max: 2, Window: 24 * time.Hour}) {
			t.Errorf("%s: timeout %s, attempts %+v", name, a.UnknownTimeout, a.Attempts)
		}
		for status, condition := range map[healthrule.State][2]string{
			healthrule.Healthy:   {want.condition, "True"},
			healthrule.Unhealthy: {want.condition, "False"},
			healthrule.Unknown:   {want.condition, "Unknown"},
		} {
			if got := evaluate(a, condition[0], condition[1]); got != status {
				t.Errorf("%s with %v is %s, want %s", name, condition, got, status)
			}
		}
		if got := evaluate(a, "SignalSent", "False"); got != healthrule.Unhealthy {
			t.Errorf("%s with a refused signal is %s, want Unhealthy", name, got)
		}
	}
	for name, human := range map[record.Action]bool{
		record.ActionNone: false, record.ActionContactSupport: true, record.ActionRunFieldDiag: true,
		record.ActionRunDCGMEUD: true, record.ActionUnknown: true, record.ActionCustom: true, "SWAP_DISK": true,
	} {
		if p.NeedsHuman(name) != human {
			t.Errorf("NeedsHuman(%s) = %v, want %v", name, !human, human)
		}
	}
	for name, nothing := range map[record.Action]bool{
		record.ActionNone: true, "": true, record.ActionRestartVM: false, record.ActionContactSupport: false, "SWAP_DISK": false,
	} {
		if p.RequiresNoAction(name) != nothing {
			t.Errorf("RequiresNoAction(%s) = %v, want %v", name, !nothing, nothing)
		}
	}
	if w := p.Warnings(); len(w) > 0 {
		t.Errorf("the defaults warn: %q", w)
	}
}

func evaluate(a action.Action, condition, status string) healthrule.State {
	obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{"type": condition, "status": status}},
	}}}
	return healthrule.Evaluate(obj, &a.Rule, nil).State
}

func TestCompile(t *testing.T) {
	tests := map[string]struct {
		doc   string
		files map[string]string
		want  string // part of the error, "" is valid
	}{
		"valid":                  {doc: valid},
		"template from a file":   {doc: strings.Replace(valid, "template = '''", "templateFileName = 'x.yaml'\nnamespace='''", 1), want: "must be empty for scope Cluster"},
		"unknown key":            {doc: valid + "colour = 'red'", want: "unknown key remediationActions.RESTART_VM.colour"},
		"unknown template key":   {doc: "[template]\nmountpoint = '/x'\n" + valid, want: "unknown key template.mountpoint"},
		"no group":               {doc: strings.Replace(valid, "equivalenceGroup = \"restart\"", "", 1), want: "equivalenceGroup: is required"},
		"no kind":                {doc: strings.Replace(valid, "kind = \"Rebirth\"", "", 1), want: "kind: is required"},
		"namespaced, nowhere":    {doc: valid + "scope = 'Namespaced'", want: "namespace: is required"},
		"scope of another world": {doc: valid + "scope = 'Galaxy'", want: `scope: "Galaxy"`},
		"no rule":                {doc: strings.Replace(valid, "completeConditionType = \"Done\"", "", 1), want: "healthRule or completeConditionType is required"},
		"two rules":              {doc: valid + "healthRule = {alwaysHealthy = {}}", want: "mutually exclusive, set one"},
		"broken rule":            {doc: strings.Replace(valid, "completeConditionType = \"Done\"", "healthRule = {}", 1), want: "exactly one of"},
		"two templates":          {doc: valid + "templateFileName = 'x'", want: "template and templateFileName are mutually exclusive,"},
		"no such file":           {doc: withoutTemplate() + "templateFileName = 'x.yaml'", want: "reading x.yaml"},
		"no template at all":     {doc: withoutTemplate(), want: "template or templateFileName is required"},
		"default file":           {doc: "[template]\nfileName = 'd.yaml'\n" + withoutTemplate(), files: map[string]string{"d.yaml": "apiVersion: example.com/v1\nkind: Rebirth"}},
		"template of a mistake":  {doc: strings.Replace(valid, ".NodeName", ".NodName", 1), want: "NodName"},
		"template syntax":        {doc: strings.Replace(valid, "{{ quote .NodeName }}", "{{ .NodeName", 1), want: "parsing inline"},
		"template no YAML":       {doc: strings.Replace(valid, "spec: {nodeName", "spec: }{", 1), want: "reading the YAML"},
		"template another kind":  {doc: strings.Replace(valid, "kind: Rebirth", "kind: Death", 1), want: "not a example.com/v1, Kind=Rebirth"},
		"attempts":               {doc: valid + "attempts = {max = 0, window = '1h'}", want: "attempts: max 0"},
		"attempts in no time":    {doc: valid + "attempts = {max = 3, window = '0s'}", want: "window 0s must both be above 0"},
		"negative timeout":       {doc: valid + "unknownTimeout = '-1s'", want: "unknownTimeout"},
		"negative backoff":       {doc: valid + "backoff = '-1s'", want: "backoff"},
		"rank of a known action": {doc: valid + "rank = 3", want: "RESTART_VM has rank 2, not 3"},
		"custom without rank":    {doc: strings.Replace(valid, "RESTART_VM", "SWAP_DISK", 1), want: "rank: is required"},
		"custom with rank":       {doc: strings.Replace(valid, "RESTART_VM", "SWAP_DISK", 1) + "rank = 2"},
		"rank zero":              {doc: strings.Replace(valid, "RESTART_VM", "SWAP_DISK", 1) + "rank = 0", want: "rank: 0"},
		"NONE":                   {doc: strings.Replace(valid, "RESTART_VM", "NONE", 1), want: "requires no remediation"},
		"stops":                  {doc: valid + "onFailure = 'stop'"},
		"escalates":              {doc: valid + "onFailure = 'escalate POWER_CYCLE'" + power},
		"escalates nowhere":      {doc: valid + "onFailure = 'escalate'", want: `onFailure: "escalate" is not "stop" or "escalate <action>"`},
		"gives up":               {doc: valid + "onFailure = 'despair'", want: `onFailure: "despair"`},
		"escalates to a blank":   {doc: valid + "onFailure = 'escalate REPLACE_VM'", want: `remediationActions."RESTART_VM": onFailure: REPLACE_VM is not configured`},
		"escalates in its group": {doc: valid + "onFailure = 'escalate POWER_CYCLE'" + strings.Replace(power, "'power'", "'restart'", 1), want: "has the same equivalence group restart"},
		"escalates to less":      {doc: valid + "onFailure = 'escalate POWER_CYCLE'" + strings.Replace(power, "rank = 2", "rank = 1", 1), want: "POWER_CYCLE (rank 1) is weaker than RESTART_VM (rank 2)"},
		"chain":                  {doc: "[remediationActions.\"RESTART_VM\"]\nchain = 'c'\nequivalenceGroup = 'restart'\n"},
		"chain without group":    {doc: "[remediationActions.\"RESTART_VM\"]\nchain = 'c'\n", want: "equivalenceGroup: is required"},
		"chain and a kind":       {doc: valid + "chain = 'c'", want: `remediationActions."RESTART_VM": chain: replaces the object, remove `},
		"escalation loop:":       {doc: valid + "onFailure = 'escalate POWER_CYCLE'" + power + "onFailure = 'escalate REBOOT_NODE'", want: "escalation loop: [POWER_CYCLE RESTART_VM POWER_CYCLE]"},
		"escalates to itself":    {doc: valid + "onFailure = 'escalate RESTART_VM'", want: "has the same equivalence group"},
		"superseded":             {doc: valid + "supersedingEquivalenceGroups = ['power']" + power},
		"superseded by nobody":   {doc: valid + "supersedingEquivalenceGroups = ['power']", want: `supersedingEquivalenceGroups: "power" is not the equivalenceGroup of a configured action`},
		"superseded by itself":   {doc: valid + "supersedingEquivalenceGroups = ['restart']", want: `"restart" is the action's own`},
		"superseded by less":     {doc: valid + "supersedingEquivalenceGroups = ['power']" + strings.Replace(power, "rank = 2", "rank = 1", 1), want: `"power" (rank 1) is weaker than RESTART_VM (rank 2)`},
		"a scope of one GPU":     {doc: strings.Replace(valid, "RESTART_VM", "COMPONENT_RESET", 1) + "impactedEntityScope = 'GPU_UUID'"},
		"another scope":          {doc: strings.Replace(valid, "RESTART_VM", "COMPONENT_RESET", 1) + "impactedEntityScope = 'PCI'", want: `impactedEntityScope: "PCI" is not GPU_UUID`},
		"a scope of the machine": {doc: valid + "impactedEntityScope = 'GPU_UUID'", want: "RESTART_VM acts on the complete machine"},
		"template of nothing":    {doc: withoutTemplate() + "template = '{{ if false }}x{{ end }}'", want: `remediationActions."RESTART_VM": template inline: renders no object`},
		"template of a comment":  {doc: withoutTemplate() + "template = '# nothing here'", want: "renders no object"},
		"template of no object":  {doc: strings.Replace(valid, "spec:", "metadata: rebirth\nspec:", 1), want: "metadata is not an object"},
		"template of two":        {doc: strings.Replace(valid, "spec:", "---\napiVersion: v1\nkind: Pod\nspec:", 1), want: "renders 2 objects"},
		"template of a list":     {doc: withoutTemplate() + "template = '[1]'", want: "reading the YAML"},
		"template with a lead":   {doc: strings.Replace(valid, "apiVersion: ex", "# ours\n---\napiVersion: ex", 1)},
		"REBOOT_NODE twice":      {doc: valid + strings.Replace(valid, "RESTART_VM", "REBOOT_NODE", 1), want: "RESTART_VM is a duplicate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := compile(t, tt.doc, tt.files)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func withoutTemplate() string {
	head, _, _ := strings.Cut(valid, "template = '''")
	return head
}

func TestPolicyKeys(t *testing.T) {
	p, err := compile(t, valid+"unknownTimeout = '0s'\nattempts = {max = 5, window = '1h'}\nbackoff = '2m'\nresource = 'rebirthlings'", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := p.Of(record.ActionRestartVM)
	if a.UnknownTimeout != 0 || a.Attempts.Max != 5 || a.Attempts.Window != time.Hour || a.GVR().String() != "example.com/v1, Resource=rebirthlings" {
		t.Errorf("compiled %+v", a)
	}
	var pauses []time.Duration
	for n := 1; n < 8; n++ {
		pauses = append(pauses, a.Pause(n)/time.Minute)
	}
	if diff := cmp.Diff([]time.Duration{2, 4, 8, 16, 32, 60, 60}, pauses); diff != "" {
		t.Errorf("pauses in minutes (-want +got):\n%s", diff)
	}
	if w := p.Warnings(); len(w) != 0 {
		t.Errorf("warnings %q, want none", w)
	}
}

func TestWarnsOfSingleConditionOnJanitorKinds(t *testing.T) {
	doc := strings.ReplaceAll(strings.ReplaceAll(valid, "example.com/v1", "janitor.dgxc.nvidia.com/v1"), "example.com", "janitor.dgxc.nvidia.com")
	p, err := compile(t, doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w := p.Warnings(); len(w) != 1 || !strings.Contains(w[0], "refused signal") {
		t.Errorf("warnings %q, want one about the refused signal", w)
	}
}
