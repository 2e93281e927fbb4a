package nodehealthcheck_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const manifests = "../../../distros/helm/nvsentinel/manifests/crds"

// checks is a client of the kind on a real API server.
func checks(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	text, err := os.Open(filepath.Join(manifests, "remediation.medik8s.io_nodehealthchecks.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := cluster.Apply(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	return cluster.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("nodehealthchecks"))
}

// object is a check whose spec is the base with the JSON merge of patch over it.
func object(t *testing.T, name, patch string) *unstructured.Unstructured {
	t.Helper()
	base := `{"selector":{"matchLabels":{"pool":"gpu"}},"minHealthy":"51%",
		"remediationTemplate":{"apiVersion":"example.com/v1","kind":"FixTemplate","namespace":"ns","name":"fix"}}`
	spec := map[string]any{}
	for _, text := range []string{base, patch} {
		var part map[string]any
		if err := json.Unmarshal([]byte(text), &part); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for key, value := range part {
			if value == nil {
				delete(spec, key)
			} else {
				spec[key] = value
			}
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	o.SetName(name)
	return o
}

const (
	template = `"remediationTemplate":{"apiVersion":"example.com/v1","kind":"FixTemplate","namespace":"ns","name":"fix"}`
	// steps takes further fields of the second of two steps.
	steps = `{"remediationTemplate":null,"escalatingRemediations":[{` + template + `,"order":1,"timeout":"60s"},{` + template + `,%s}]}`
)

// TestRejected: each object is refused, and the message names the field and the reason.
func TestRejected(t *testing.T) {
	client := checks(t)
	ref := func(fields string) string { return `{"remediationTemplate":{` + fields + `}}` }
	step := func(fields string) string { return fmt.Sprintf(steps, fields) }
	condition := func(fields string) string { return `{"unhealthyConditions":[{` + fields + `}]}` }
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprintf(`{%s,"order":%d,"timeout":"60s"}`, template, i))
	}
	tests := []struct{ name, patch, field, why string }{
		{"no selector", `{"selector":null}`, "spec.selector", "Required value"},
		{"an empty selector", `{"selector":{}}`, "spec.selector", "must not be empty"},
		{"empty labels", `{"selector":{"matchLabels":{}}}`, "spec.selector", "must not be empty"},
		{"empty expressions", `{"selector":{"matchExpressions":[]}}`, "spec.selector", "must not be empty"},
		{"In without values", `{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`, "spec.selector.matchExpressions[0].values", "values must be given"},
		{"NotIn with no values", `{"selector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":[]}]}}`, "spec.selector.matchExpressions[0].values", "values must be given"},
		{"Exists with values", `{"selector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`, "spec.selector.matchExpressions[0].values", "for no other"},
		{"an unknown operator", `{"selector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}}`, "spec.selector.matchExpressions[0].operator", "supported values"},
		{"a key that is none", `{"selector":{"matchExpressions":[{"key":"a b","operator":"Exists"}]}}`, "spec.selector.matchExpressions[0].key", "should match"},
		{"an empty key", `{"selector":{"matchExpressions":[{"key":"","operator":"Exists"}]}}`, "spec.selector.matchExpressions[0].key", "at least 1 chars"},
		{"a value that is none", `{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["-b"]}]}}`, "spec.selector.matchExpressions[0].values[0]", "should match"},
		{"a label's value that is none", `{"selector":{"matchLabels":{"a":"b c"}}}`, "spec.selector.matchLabels.a", "should match"},
		{"both templates", `{"escalatingRemediations":[{` + template + `,"order":1,"timeout":"60s"}]}`, "spec.remediationTemplate", "exactly one of remediationTemplate and escalatingRemediations"},
		{"no template", `{"remediationTemplate":null}`, "spec.remediationTemplate", "exactly one of remediationTemplate and escalatingRemediations"},
		{"an empty list of steps", `{"remediationTemplate":null,"escalatingRemediations":[]}`, "spec.remediationTemplate", "exactly one of remediationTemplate and escalatingRemediations"},
		{"a template without a version", ref(`"kind":"FixTemplate","name":"fix"`), "spec.remediationTemplate.apiVersion", "Required value"},
		{"a template's version that is none", ref(`"apiVersion":"a/b/c","kind":"FixTemplate","name":"fix"`), "spec.remediationTemplate.apiVersion", "should match"},
		{"a template without a kind", ref(`"apiVersion":"a.b/v1","name":"fix"`), "spec.remediationTemplate.kind", "Required value"},
		{"a kind that is no template", ref(`"apiVersion":"a.b/v1","kind":"Fix","name":"fix"`), "spec.remediationTemplate.kind", "Template$"},
		{"a kind that is Template alone", ref(`"apiVersion":"a.b/v1","kind":"Template","name":"fix"`), "spec.remediationTemplate.kind", "Template$"},
		{"a template without a name", ref(`"apiVersion":"a.b/v1","kind":"FixTemplate"`), "spec.remediationTemplate.name", "Required value"},
		{"a template with an empty name", ref(`"apiVersion":"a.b/v1","kind":"FixTemplate","name":""`), "spec.remediationTemplate.name", "at least 1 chars"},
		{"a step without a template", `{"remediationTemplate":null,"escalatingRemediations":[{"order":1,"timeout":"60s"}]}`, "spec.escalatingRemediations[0].remediationTemplate", "Required value"},
		{"a step whose kind is no template", `{"remediationTemplate":null,"escalatingRemediations":[{"remediationTemplate":{"apiVersion":"a.b/v1","kind":"Fix","name":"x"},"order":1,"timeout":"60s"}]}`, "spec.escalatingRemediations[0].remediationTemplate.kind", "Template$"},
		{"a step without an order", step(`"timeout":"60s"`), "spec.escalatingRemediations[1].order", "Required value"},
		{"a step without a timeout", step(`"order":2`), "spec.escalatingRemediations[1].timeout", "Required value"},
		{"33 steps", `{"remediationTemplate":null,"escalatingRemediations":[` + strings.Join(many, ",") + `]}`, "spec.escalatingRemediations", "must have at most 32 items"},
		{"two steps of one order", step(`"order":1,"timeout":"60s"`), "spec.escalatingRemediations[1]", "Duplicate value"},
		{"a step of less than a minute", step(`"order":2,"timeout":"59s"`), "spec.escalatingRemediations[1].timeout", "must be at least 60s"},
		{"a step without time", step(`"order":2,"timeout":"0s"`), "spec.escalatingRemediations[1].timeout", "must be at least 60s"},
		{"a negative timeout", step(`"order":2,"timeout":"-60s"`), "spec.escalatingRemediations[1].timeout", "should match"},
		{"a timeout in days", step(`"order":2,"timeout":"1d"`), "spec.escalatingRemediations[1].timeout", "should match"},
		{"a timeout that is a number", step(`"order":2,"timeout":60`), "spec.escalatingRemediations[1].timeout", "must be of type string"},
		{"an order that is a fraction", step(`"order":1.5,"timeout":"60s"`), "spec.escalatingRemediations[1].order", "must be of type integer"},
		{"both budgets", `{"maxUnhealthy":1}`, "spec.minHealthy", "exactly one of minHealthy and maxUnhealthy"},
		{"no budget", `{"minHealthy":null}`, "spec.minHealthy", "exactly one of minHealthy and maxUnhealthy"},
		{"more than all", `{"minHealthy":"101%"}`, "spec.minHealthy", "should match"},
		{"a word as a budget", `{"minHealthy":"most"}`, "spec.minHealthy", "should match"},
		{"a negative budget", `{"minHealthy":-1}`, "spec.minHealthy", "must not be negative"},
		{"a negative budget in quotes", `{"minHealthy":"-1"}`, "spec.minHealthy", "should match"},
		{"a negative number of unhealthy nodes", `{"minHealthy":null,"maxUnhealthy":-3}`, "spec.maxUnhealthy", "must not be negative"},
		{"half a per cent", `{"minHealthy":null,"maxUnhealthy":"0.5%"}`, "spec.maxUnhealthy", "should match"},
		{"maxUnhealthy with a deleting remediator", `{"minHealthy":null,"maxUnhealthy":1,"remediationTemplate":{"apiVersion":"a.b/v1","kind":"MachineDeletionRemediationTemplate","namespace":"ns","name":"x"}}`, "spec.maxUnhealthy", "deletes nodes"},
		{"maxUnhealthy with TerminateNode as a step", `{"minHealthy":null,"maxUnhealthy":1,"remediationTemplate":null,"escalatingRemediations":[{"remediationTemplate":{"apiVersion":"janitor.dgxc.nvidia.com/v1alpha1","kind":"TerminateNodeTemplate","name":"x"},"order":1,"timeout":"1h"}]}`, "spec.maxUnhealthy", "deletes nodes"},
		{"a condition without a type", condition(`"status":"False","duration":"1s"`), "spec.unhealthyConditions[0].type", "Required value"},
		{"a condition with an empty type", condition(`"type":"","status":"False","duration":"1s"`), "spec.unhealthyConditions[0].type", "at least 1 chars"},
		{"a condition without a status", condition(`"type":"Ready","duration":"1s"`), "spec.unhealthyConditions[0].status", "Required value"},
		{"a status that is no string", condition(`"type":"Ready","status":false,"duration":"1s"`), "spec.unhealthyConditions[0].status", "must be of type string"},
		{"a condition without a duration", condition(`"type":"Ready","status":"False"`), "spec.unhealthyConditions[0].duration", "Required value"},
		{"a negative duration", condition(`"type":"Ready","status":"False","duration":"-1s"`), "spec.unhealthyConditions[0].duration", "should match"},
		{"a duration without a unit", condition(`"type":"Ready","status":"False","duration":"300"`), "spec.unhealthyConditions[0].duration", "should match"},
		{"a condition twice", condition(`"type":"Ready","status":"False","duration":"1s"},{"type":"Ready","status":"False","duration":"2s"`), "spec.unhealthyConditions[1]", "Duplicate value"},
		{"a delay that is none", `{"healthyDelay":"soon"}`, "spec.healthyDelay", "should match"},
		{"a delay of more than a hundred years", `{"healthyDelay":"876001h"}`, "spec.healthyDelay", "at most 876000h"},
		{"a delay that no number holds", `{"healthyDelay":"-9999999999h"}`, "spec.healthyDelay", "at most 876000h"},
		{"a delay that is long to read", `{"healthyDelay":"` + strings.Repeat("1h", 40) + `"}`, "spec.healthyDelay", "more than 64 bytes"},
		{"a duration that no number holds", condition(`"type":"Ready","status":"False","duration":"9999999999h"`), "spec.unhealthyConditions[0].duration", "at most 876000h"},
		{"a duration of many parts that no number holds", condition(`"type":"Ready","status":"False","duration":"2562047h99999999m"`), "spec.unhealthyConditions[0].duration", "at most 876000h"},
		{"a timeout that no number holds", step(`"order":2,"timeout":"9999999999h"`), "spec.escalatingRemediations[1].timeout", "at most 876000h"},
		{"a budget that no int32 holds", `{"minHealthy":3000000000}`, "spec.minHealthy", "at most 2147483647"},
		{"a budget in quotes that no int32 holds", `{"minHealthy":"3000000000"}`, "spec.minHealthy", "at most 2147483647"},
		{"a budget in quotes that no number holds", `{"minHealthy":"99999999999999999999"}`, "spec.minHealthy", "at most 2147483647"},
		{"a budget that no int64 holds", `{"minHealthy":1e30}`, "spec.minHealthy", ""},
		{"a number of unhealthy nodes that no int32 holds", `{"minHealthy":null,"maxUnhealthy":3000000000}`, "spec.maxUnhealthy", "at most 2147483647"},
		{"an order that no int32 holds", step(`"order":3000000000,"timeout":"60s"`), "<nil>", "format int32 in spec.escalatingRemediations[1].order"},
		{"a threshold that no int32 holds", `{"stormRecoveryThreshold":3000000000}`, "<nil>", "format int32 in spec.stormRecoveryThreshold"},
		{"pauses that are no list", `{"pauseRequests":"upgrade"}`, "spec.pauseRequests", "must be of type array"},
		{"medik8s' end of a storm by the clock", `{"stormCooldownDuration":"5m"}`, "spec.stormCooldownDuration", "set stormRecoveryThreshold"},
		{"a negative threshold", `{"stormRecoveryThreshold":-1}`, "spec.stormRecoveryThreshold", "greater than or equal to 0"},
		{"a threshold in per cent", `{"stormRecoveryThreshold":"10%"}`, "spec.stormRecoveryThreshold", "must be of type integer"},
	}
	if len(tests) < 40 {
		t.Errorf("only %d objects", len(tests))
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := client.Create(t.Context(), object(t, "rejected", tt.patch), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				t.Fatal("it was taken")
			}
			if !strings.Contains(err.Error(), tt.field+":") || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%v\nnames not %q, or does not say %q", err, tt.field, tt.why)
			}
		})
	}
}

// TestTaken: what is at the edge of the rules is taken, and gets its defaults.
func TestTaken(t *testing.T) {
	client := checks(t)
	for name, patch := range map[string]string{
		"plain":                   `{}`,
		"the ends of percentages": `{"minHealthy":"0%"}`, "all": `{"minHealthy":null,"maxUnhealthy":"100%"}`, "a number": `{"minHealthy":0}`,
		"a number in quotes": `{"minHealthy":"11"}`,
		"negative orders":    fmt.Sprintf(steps, `"order":-1,"timeout":"1m"`),
		"the largest number": `{"minHealthy":2147483647}`, "the largest number in quotes": `{"minHealthy":"2147483647"}`,
		"a version without a number": `{"remediationTemplate":{"apiVersion":"example.com/stable","kind":"FixTemplate","namespace":"ns","name":"x"}}`,
		"a kind in small letters":    `{"remediationTemplate":{"apiVersion":"example.com/v1","kind":"fixTemplate","namespace":"ns","name":"x"}}`,
		"a delay of ten years":       `{"healthyDelay":"87600h"}`,
		"a negative delay":           `{"healthyDelay":"-1s"}`, "a fraction": `{"healthyDelay":"1.5h"}`,
		"expressions":       `{"selector":{"matchExpressions":[{"key":"node-role.kubernetes.io/control-plane","operator":"DoesNotExist"},{"key":"a/b_c.d","operator":"In","values":["","x"]}]}}`,
		"cluster-scoped":    `{"remediationTemplate":{"apiVersion":"janitor.dgxc.nvidia.com/v1alpha1","kind":"RebootNodeTemplate","name":"x"}}`,
		"two statuses":      `{"unhealthyConditions":[{"type":"Ready","status":"False","duration":"0s"},{"type":"Ready","status":"Unknown","duration":"1h30m"}]}`,
		"storm and pause":   `{"stormRecoveryThreshold":0,"pauseRequests":["performing cluster upgrade"]}`,
		"minHealthy delete": `{"remediationTemplate":{"apiVersion":"a.b/v1","kind":"MachineDeletionRemediationTemplate","namespace":"ns","name":"x"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := client.Create(t.Context(), object(t, "taken", patch), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Error(err)
			}
		})
	}
	got, err := client.Create(t.Context(), object(t, "taken", `{}`), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(got.Object["spec"].(map[string]any)["unhealthyConditions"])
	if want := `[{"duration":"300s","status":"False","type":"Ready"},{"duration":"300s","status":"Unknown","type":"Ready"}]`; string(text) != want {
		t.Errorf("the default conditions are %s", text)
	}
}

// TestLockedWhileRemediating: the fields that define which nodes are remediated and how cannot
// be changed while a node has a remediation; all others can.
func TestLockedWhileRemediating(t *testing.T) {
	client := checks(t)
	stored, err := client.Create(t.Context(), object(t, "locked", `{}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	update := func(change func(spec map[string]any)) error {
		o := stored.DeepCopy()
		change(o.Object["spec"].(map[string]any))
		_, err := client.Update(t.Context(), o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	status := func(nodes ...any) {
		o := stored.DeepCopy()
		o.Object["status"] = map[string]any{"unhealthyNodes": nodes}
		if stored, err = client.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	locked := map[string]func(spec map[string]any){
		"selector": func(spec map[string]any) {
			spec["selector"] = map[string]any{"matchLabels": map[string]any{"pool": "cpu"}}
		},
		"remediationTemplate": func(spec map[string]any) {
			spec["remediationTemplate"] = map[string]any{"apiVersion": "example.com/v1", "kind": "FixTemplate", "namespace": "ns", "name": "other"}
		},
		"escalatingRemediations": func(spec map[string]any) {
			spec["escalatingRemediations"] = []any{map[string]any{"remediationTemplate": spec["remediationTemplate"], "order": int64(1), "timeout": "60s"}}
			delete(spec, "remediationTemplate")
		},
	}
	free := map[string]func(spec map[string]any){
		"minHealthy":             func(spec map[string]any) { spec["minHealthy"] = int64(3) },
		"pauseRequests":          func(spec map[string]any) { spec["pauseRequests"] = []any{"x"} },
		"healthyDelay":           func(spec map[string]any) { spec["healthyDelay"] = "5m" },
		"stormRecoveryThreshold": func(spec map[string]any) { spec["stormRecoveryThreshold"] = int64(1) },
		"unhealthyConditions": func(spec map[string]any) {
			spec["unhealthyConditions"] = []any{map[string]any{"type": "Ready", "status": "False", "duration": "1m"}}
		},
	}
	status(map[string]any{"name": "waits"})
	for field, change := range locked {
		if err := update(change); err != nil {
			t.Errorf("%s, while no node is remediated: %v", field, err)
		}
	}
	status(map[string]any{"name": "waits"}, map[string]any{"name": "n", "remediations": []any{map[string]any{
		"resource": map[string]any{"name": "n"}, "started": "2026-01-02T03:04:05Z",
	}}})
	for field, change := range locked {
		err := update(change)
		if err == nil || !strings.Contains(err.Error(), field+": update is prohibited due to running remediation") {
			t.Errorf("%s, while a node is remediated: %v", field, err)
		}
	}
	for field, change := range free {
		if err := update(change); err != nil {
			t.Errorf("%s, while a node is remediated: %v", field, err)
		}
	}
	if err := client.Delete(t.Context(), "locked", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
