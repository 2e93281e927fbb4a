package repairchain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// waitTimeout bounds the waits for a condition, on machines of any speed.
const waitTimeout = 2 * time.Minute

var resources = map[string]string{v1alpha1.TemplateKind: "repairtemplates", v1alpha1.ChainKind: "repairchains", v1alpha1.RunKind: "repairruns", v1alpha1.RunTemplateKind: "repairruntemplates"}

// cluster is a client of the kinds on a real API server.
func cluster(t *testing.T) func(kind string) dynamic.ResourceInterface {
	t.Helper()
	c := localcluster.ForTest(t, localcluster.Options{})
	manifests := "../../../distros/helm/nvsentinel/manifests/"
	files := []string{manifests + "repair-chain-remediation.yaml"}
	for _, resource := range resources {
		files = append(files, "../../../distros/helm/nvsentinel/crds/nvsentinel.dgxc.nvidia.com_"+resource+".yaml")
	}
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		_ = text.Close()
	}
	return func(kind string) dynamic.ResourceInterface {
		return c.Dynamic().Resource(v1alpha1.GroupVersion.WithResource(resources[kind]))
	}
}

func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	var body map[string]any
	if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(spec), 4096).Decode(&body); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	o.Object["spec"] = body
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetGenerateName("rejected-")
	return o
}

// many is a list of n items.
func many(n int, item string) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(item, i))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// TestRejected: the API server rejects what can't be meant, and names the field.
func TestRejected(t *testing.T) {
	client := cluster(t)
	template := func(rest string) string {
		return "{template: {apiVersion: v1, kind: ConfigMap}, " + rest + "}"
	}
	rule := func(rest string) string { return template("artifactTracing: {healthRule: {" + rest + "}}") }
	step := func(rest string) string { return "{steps: [{name: a, template: t, " + rest + "}]}" }
	for _, x := range []struct{ kind, spec, message string }{
		{v1alpha1.TemplateKind, "{}", "spec.template"},
		{v1alpha1.TemplateKind, "{template: {kind: ConfigMap}}", "spec.template.apiVersion"},
		{v1alpha1.TemplateKind, "{template: {apiVersion: v1}}", "spec.template.kind"},
		{v1alpha1.TemplateKind, rule(""), "exactly one of alwaysHealthy, singleConditionType and multiMatch"},
		{v1alpha1.TemplateKind, rule("singleConditionType: ''"), "exactly one of"},
		{v1alpha1.TemplateKind, rule("singleConditionType: Ready, alwaysHealthy: {}"), "exactly one of"},
		{v1alpha1.TemplateKind, template("healthRule: {}"), "spec.healthRule"},
		{v1alpha1.TemplateKind, rule("multiMatch: {healthy: {matchConditions: [{type: A, status: B}]}}"), "multiMatch.unhealthy"},
		{v1alpha1.TemplateKind, rule("multiMatch: {healthy: {matchConditions: [{type: A, status: B}]}, unhealthy: {}}"), "at least one of matchConditions and matchFields"},
		{v1alpha1.TemplateKind, rule("multiMatch: {healthy: {matchConditions: [{type: A}]}, unhealthy: {matchFields: [{key: a, operator: Exists}]}}"), "matchConditions[0].status"},
		{v1alpha1.TemplateKind, rule("multiMatch: {healthy: {matchFields: [{key: a, operator: In}]}, unhealthy: {matchFields: [{key: a, operator: Exists}]}}"), "values must be given for the operators In and NotIn"},
		{v1alpha1.TemplateKind, rule("multiMatch: {healthy: {matchFields: [{key: a, operator: Exists, values: [x]}]}, unhealthy: {matchFields: [{key: a, operator: Exists}]}}"), "and for no other"},
		{v1alpha1.TemplateKind, rule("multiMatch: {healthy: {matchFields: [{key: a, operator: Is}]}, unhealthy: {matchFields: [{key: a, operator: Exists}]}}"), "operator"},
		{v1alpha1.TemplateKind, rule("multiMatch: {healthy: {matchFields: [{key: '', operator: Exists}]}, unhealthy: {matchFields: [{key: a, operator: Exists}]}}"), "key"},
		{v1alpha1.TemplateKind, template("lifecycle: eternal"), "spec.lifecycle"},
		{v1alpha1.TemplateKind, template("outputs: [{name: a-b, path: .x}]"), "outputs[0].name"},
		{v1alpha1.TemplateKind, template("outputs: [{name: a, path: ''}]"), "outputs[0].path"},
		{v1alpha1.TemplateKind, template("outputs: [{name: a, path: .x}, {name: a, path: .y}]"), "outputs[1]"},
		{v1alpha1.TemplateKind, template("outputs: " + many(17, "{name: a%d, path: .x}")), "spec.outputs"},
		{v1alpha1.ChainKind, "{}", "spec.steps"},
		{v1alpha1.ChainKind, "{steps: []}", "spec.steps"},
		{v1alpha1.ChainKind, "{steps: " + many(13, "{name: a%d, template: t}") + "}", "spec.steps"},
		{v1alpha1.ChainKind, "{steps: [{name: a, template: t}, {name: a, template: t}]}", "steps[1]"},
		{v1alpha1.ChainKind, "{steps: [{name: A, template: t}]}", "steps[0].name"},
		{v1alpha1.ChainKind, "{steps: [{name: a-, template: t}]}", "steps[0].name"},
		{v1alpha1.ChainKind, "{steps: [{name: -a, template: t}]}", "steps[0].name"},
		{v1alpha1.ChainKind, "{steps: [{name: a}]}", "steps[0].template"},
		{v1alpha1.ChainKind, step("onFailure: again"), "steps[0].onFailure"},
		{v1alpha1.ChainKind, step("timeout: 0s"), "must be more than 0s and at most 168h"},
		{v1alpha1.ChainKind, step("timeout: 169h"), "must be more than 0s and at most 168h"},
		{v1alpha1.ChainKind, step("timeout: soon"), "timeout"},
		{v1alpha1.ChainKind, step("inputs: [{name: a}]"), "inputs[0].value"},
		{v1alpha1.ChainKind, step("inputs: [{name: a b, value: x}]"), "inputs[0].name"},
		{v1alpha1.ChainKind, step("inputs: " + many(17, "{name: a%d, value: x}")), "steps[0].inputs"},
		{v1alpha1.RunKind, "{nodeName: '', chain: c}", "spec.nodeName"},
		{v1alpha1.RunKind, "{nodeName: node-1}", "spec.chain"},
		{v1alpha1.RunKind, "{nodeName: node-1, chain: c, fault: {errorCode: " + many(65, "'%d'") + "}}", "errorCode"},
		{v1alpha1.RunTemplateKind, "{template: {}}", "spec.template.spec"},
		{v1alpha1.RunTemplateKind, "{template: {spec: {}}}", "spec.template.spec.chain"},
		{v1alpha1.RunTemplateKind, "{template: {spec: {chain: c, nodeName: node-1}}}", "a template names no node"},
	} {
		_, err := client(x.kind).Create(t.Context(), object(t, x.kind, x.spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if err == nil || !strings.Contains(err.Error(), x.message) {
			t.Errorf("%s %s: %v; want %q", x.kind, x.spec, err, x.message)
		}
	}
}

// TestDefaults: a step stops the run if it fails, within an hour; an object acts once;
// what a run does can not be changed.
func TestDefaults(t *testing.T) {
	client := cluster(t)
	for _, x := range []struct{ kind, spec, want string }{
		{v1alpha1.ChainKind, "{steps: [{name: a, template: t}]}", "map[steps:[map[name:a onFailure:stop template:t timeout:1h]]]"},
		{v1alpha1.TemplateKind, "{template: {apiVersion: v1, kind: ConfigMap, data: {a: '{{ .NodeName }}'}}}", "map[lifecycle:immutable template:map[apiVersion:v1 data:map[a:{{ .NodeName }}] kind:ConfigMap]]"},
	} {
		o, err := client(x.kind).Create(t.Context(), object(t, x.kind, x.spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || fmt.Sprint(o.Object["spec"]) != x.want {
			t.Errorf("%s: %v, %v", x.spec, o, err)
		}
	}
	run, err := client(v1alpha1.RunKind).Create(t.Context(), object(t, v1alpha1.RunKind, "{nodeName: node-1, chain: c}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = unstructured.SetNestedField(run.Object, "other", "spec", "nodeName")
	if _, err := client(v1alpha1.RunKind).Update(t.Context(), run, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "what a run does can not be changed") {
		t.Errorf("a run was changed: %v", err)
	}
}

// TestARunWithoutANode: only one that a NodeHealthCheck owns may do without, and nobody
// names its node later.
func TestARunWithoutANode(t *testing.T) {
	client := cluster(t)
	create := func(owner metav1.OwnerReference, annotations map[string]string) (*unstructured.Unstructured, error) {
		run := object(t, v1alpha1.RunKind, "{chain: c}")
		run.SetAnnotations(annotations)
		if owner.Kind != "" {
			owner.Name, owner.UID = "check", "1"
			run.SetOwnerReferences([]metav1.OwnerReference{owner})
		}
		return client(v1alpha1.RunKind).Create(t.Context(), run, metav1.CreateOptions{})
	}
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "except for a run that a NodeHealthCheck owns")
	}
	testkit.Until(t, waitTimeout, func() bool { // a policy takes effect shortly after it is applied
		_, err := create(metav1.OwnerReference{}, nil)
		return refused(err)
	})
	named := map[string]string{v1alpha1.NodeNameAnnotation: "node-1"}
	for what, owner := range map[string]metav1.OwnerReference{
		"an annotation alone": {}, "another owner": {APIVersion: "v1", Kind: "Node"}, "a check of another group": {APIVersion: "example.com/v1alpha1", Kind: "NodeHealthCheck"},
	} {
		if _, err := create(owner, named); !refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	run, err := create(metav1.OwnerReference{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = unstructured.SetNestedField(run.Object, "node-2", "spec", "nodeName")
	if _, err := client(v1alpha1.RunKind).Update(t.Context(), run, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "what a run does can not be changed") {
		t.Errorf("a run was given a node: %v", err)
	}
}

// TestNodeOf: the node that was first seen, then spec.nodeName, then what its
// NodeHealthCheck reports, and else none.
func TestNodeOf(t *testing.T) {
	check := metav1.OwnerReference{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "check"}
	named := map[string]string{v1alpha1.NodeNameAnnotation: "annotated"}
	for want, run := range map[string]v1alpha1.RepairRun{
		"seen": {
			ObjectMeta: metav1.ObjectMeta{Name: "run", Annotations: named, OwnerReferences: []metav1.OwnerReference{check}},
			Status:     v1alpha1.RepairRunStatus{NodeName: "seen"},
		},
		"asked": {
			ObjectMeta: metav1.ObjectMeta{Name: "run", Annotations: named, OwnerReferences: []metav1.OwnerReference{check}},
			Spec:       v1alpha1.RepairRunSpec{NodeName: "asked"},
		},
		"annotated": {ObjectMeta: metav1.ObjectMeta{Name: "run", Annotations: named, OwnerReferences: []metav1.OwnerReference{check}}},
		"run":       {ObjectMeta: metav1.ObjectMeta{Name: "run", OwnerReferences: []metav1.OwnerReference{check}}},
		"":          {ObjectMeta: metav1.ObjectMeta{Name: "run", Annotations: named, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node"}}}},
	} {
		if got := v1alpha1.NodeOf(&run); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestExamples: an API server takes every example.
func TestExamples(t *testing.T) {
	client := cluster(t)
	files, err := filepath.Glob("../../../examples/repair-chains/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("examples %v, %v", files, err)
	}
	for _, file := range append(files, "../../../examples/node-health-check/repair-chain.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if _, ours := resources[o.GetKind()]; !ours {
				continue
			}
			if _, err := client(o.GetKind()).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestAcceptedObjectsAreDecoded: one object that the API server has and a service can not
// decode would keep the service from all others. Times and durations are what texts are
// decoded to; each is either refused or read.
func TestAcceptedObjectsAreDecoded(t *testing.T) {
	client := cluster(t)
	accepted := map[string]int{}
	try := func(kind, spec string, into any) {
		o, err := client(kind).Create(t.Context(), object(t, kind, spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return
		}
		accepted[kind]++
		text, err := o.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Errorf("%s %s is accepted: %v", kind, spec, err)
		}
	}
	for _, at := range []string{
		"2026-03-01T12:00:00Z", "2026-03-01T12:00:00.123456789Z", "2026-03-01T12:00:00+01:30", "2026-03-01t12:00:00z", "2026-03-01T12:00:00z", "2026-03-01T12:00:00+99:99",
		"2026-03-01T12:00:00+24:00", "2026-03-01T12:00:60Z", "2026-03-01T24:00:00Z", "2026-03-01 12:00:00Z", "2026-03-01T12:00:00x5Z", "2026-03-01T12:00:00,5Z",
		"2026-02-30T12:00:00Z", "2026-03-01T12:00:00", "2026-03-01", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "",
	} {
		try(v1alpha1.RunKind, fmt.Sprintf("{nodeName: node-1, chain: c, fault: {generatedTimestamp: %q}}", at), &v1alpha1.RepairRun{})
	}
	for _, d := range []string{"1h", "1h30m", "1.5h", "90m", "168h", "9999999999h", "1d", "PT1H", "3600", "1e3s", "1h ", "+1h", "-1h", "1us", "1\u00b5s", ".5h", "1.h"} {
		try(v1alpha1.ChainKind, fmt.Sprintf("{steps: [{name: a, template: t, timeout: %q}]}", d), &v1alpha1.RepairChain{})
	}
	if accepted[v1alpha1.RunKind] < 3 || accepted[v1alpha1.ChainKind] < 5 {
		t.Errorf("accepted: %v", accepted)
	}
}
