package healthrule_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// object reads a YAML object; "" is not an object.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("reading object: %v", err)
	}
	return &unstructured.Unstructured{Object: m}
}

const ready = `
metadata: {generation: 4}
status:
  observedGeneration: 4
  phase: Done
  detail: all good
  conditions:
  - {type: Ready, status: "True", message: up}
  - {type: Failed, status: "False", message: nope}
`

var (
	always = &healthrule.Rule{AlwaysHealthy: &healthrule.Always{}}
	onType = func(x string) *healthrule.Rule { r := healthrule.Single(x); return &r }
	gated  = func(r healthrule.Rule, path string) *healthrule.Rule { r.ObservedGenerationPath = path; return &r }
	both   = func(h, u healthrule.Matchers) *healthrule.Rule {
		return &healthrule.Rule{MultiMatch: &healthrule.MultiMatch{Healthy: h, Unhealthy: u}}
	}
	cond = func(typ, status string) healthrule.Matchers {
		return healthrule.Matchers{MatchConditions: []healthrule.ConditionMatcher{{Type: typ, Status: status}}}
	}
	field = func(key string, op healthrule.Operator, messagePath string, values ...string) healthrule.Matchers {
		return healthrule.Matchers{MatchFields: []healthrule.FieldMatcher{{Key: key, Operator: op, Values: values, MessagePath: messagePath}}}
	}
	and = func(a, b healthrule.Matchers) healthrule.Matchers {
		a.MatchConditions = append(a.MatchConditions, b.MatchConditions...)
		a.MatchFields = append(a.MatchFields, b.MatchFields...)
		return a
	}
	never = cond("Never", "True")
)

// TestEvaluationTable has one row for each row of the evaluation table, and
// the rules around it.
func TestEvaluationTable(t *testing.T) {
	const H, U, X = healthrule.Healthy, healthrule.Unhealthy, healthrule.Unknown
	tests := map[string]struct {
		obj     string
		rule    *healthrule.Rule
		readErr error
		want    healthrule.Result
	}{
		"absent, alwaysHealthy":     {"", always, nil, healthrule.Result{X, "NoStampedObject", ""}},
		"absent, single":            {"", onType("Ready"), nil, healthrule.Result{X, "Unknown", ""}},
		"absent, multi":             {"", both(never, never), nil, healthrule.Result{X, "Unknown", ""}},
		"absent, no rule":           {"", nil, nil, healthrule.Result{X, "Unknown", ""}},
		"read error is not absence": {"", always, errors.New("timeout"), healthrule.Result{X, "ReadError", "timeout"}},
		"read error beats a stale object": {ready, onType("Ready"), errors.New("timeout"),
			healthrule.Result{X, "ReadError", "timeout"}},

		"gate: equal":      {ready, gated(healthrule.Single("Ready"), ".status.observedGeneration"), nil, healthrule.Result{H, "ReadyCondition", "up"}},
		"gate: mismatch":   {"metadata: {generation: 5}\nstatus: {observedGeneration: 4, conditions: [{type: Ready, status: 'True'}]}", gated(healthrule.Single("Ready"), ".status.observedGeneration"), nil, mismatch("4", "5")},
		"gate: ahead":      {"metadata: {generation: 3}\nstatus: {observedGeneration: 4}", gated(*always, ".status.observedGeneration"), nil, mismatch("4", "3")},
		"gate: failed too": {"metadata: {generation: 5}\nstatus: {observedGeneration: 4, conditions: [{type: Ready, status: 'False'}]}", gated(healthrule.Single("Ready"), ".status.observedGeneration"), nil, mismatch("4", "5")},
		"gate: multi":      {"metadata: {generation: 5}\nstatus: {observedGeneration: 4, conditions: [{type: Bad, status: 'True'}]}", gated(*both(never, cond("Bad", "True")), ".status.observedGeneration"), nil, mismatch("4", "5")},
		"gate: missing":    {"metadata: {generation: 5}", gated(*always, ".status.observedGeneration"), nil, mismatch("<not found>", "5")},
		"gate: no generation": {"metadata: {name: x}\nstatus: {observedGeneration: 4}", gated(*always, ".status.observedGeneration"), nil,
			mismatch("4", "<missing>")},
		"gate: null":        {"metadata: {generation: 5}\nstatus: {observedGeneration: null}", gated(*always, ".status.observedGeneration"), nil, mismatch("null", "5")},
		"gate: string":      {"metadata: {generation: 5}\nstatus: {observedGeneration: '5'}", gated(*always, ".status.observedGeneration"), nil, mismatch("5", "5")},
		"gate: fraction":    {"metadata: {generation: 5}\nstatus: {observedGeneration: 5.5}", gated(*always, ".status.observedGeneration"), nil, mismatch("5.5", "5")},
		"gate: zero absent": {"metadata: {name: x}\nstatus: {observedGeneration: 0}", gated(*always, ".status.observedGeneration"), nil, mismatch("0", "<missing>")},
		"gate: path error": {"metadata: {generation: 5}\nstatus: {list: 3}", gated(*always, ".status.list[0]"), nil,
			healthrule.Result{X, "ObservedGenerationMismatch", "observed generation at [.status.list[0]] is <evaluating path \".status.list[0]\": float64 is not array or slice>, generation is 5"}},

		"always": {"metadata: {name: x}", always, nil, healthrule.Result{H, "AlwaysHealthy", ""}},

		"single: True":        {ready, onType("Ready"), nil, healthrule.Result{H, "ReadyCondition", "up"}},
		"single: False":       {ready, onType("Failed"), nil, healthrule.Result{U, "FailedCondition", "nope"}},
		"single: other":       {"status: {conditions: [{type: Ready, status: Unknown, message: soon}]}", onType("Ready"), nil, healthrule.Result{X, "ReadyCondition", "soon"}},
		"single: nonstandard": {"status: {conditions: [{type: Ready, status: 'true'}]}", onType("Ready"), nil, healthrule.Result{X, "ReadyCondition", ""}},
		"single: absent type": {ready, onType("Nope"), nil, healthrule.Result{X, "NopeCondition", "condition with type [Nope] not found on resource status"}},
		"single: no status":   {"metadata: {name: x}", onType("Ready"), nil, healthrule.Result{X, "ReadyCondition", "condition with type [Ready] not found on resource status"}},
		"single: first wins":  {"status: {conditions: [{type: Ready, status: 'False'}, {type: Ready, status: 'True'}]}", onType("Ready"), nil, healthrule.Result{U, "ReadyCondition", ""}},
		"single: conditions no list": {"status: {conditions: {type: Ready}}", onType("Ready"), nil,
			healthrule.Result{X, "ReadyCondition", "condition with type [Ready] not found on resource status"}},
		"single: lenient about timestamps": {"status: {conditions: [3, {type: Ready, status: 'True', lastTransitionTime: yesterday}]}", onType("Ready"), nil,
			healthrule.Result{H, "ReadyCondition", ""}},

		"multi: U=1 H=0 condition": {ready, both(never, cond("Failed", "False")), nil, healthrule.Result{U, "MatchedCondition", "condition status: False, message: nope"}},
		"multi: U=1 H=0 field":     {ready, both(never, field("status.phase", healthrule.In, ".status.detail", "Done")), nil, healthrule.Result{U, "MatchedField", "field value: Done, message: all good"}},
		"multi: U=1 H=1":           {ready, both(cond("Ready", "True"), cond("Failed", "False")), nil, healthrule.Result{U, "MatchedCondition", "condition status: False, message: nope"}},
		"multi: any unhealthy, conditions first": {ready, both(never, and(and(never, field("status.phase", healthrule.Exists, "")), cond("Ready", "True"))), nil,
			healthrule.Result{U, "MatchedCondition", "condition status: True, message: up"}},
		"multi: first wins": {"status: {conditions: [{type: Ready, status: 'False'}, {type: Ready, status: 'True'}]}", both(cond("Ready", "True"), never), nil, healthrule.Result{X, "NoMatchesFulfilled", ""}},
		"multi: first wins, unhealthy": {"status: {conditions: [{type: Ready, status: 'False', message: refused}, {type: Ready, status: 'True'}]}", both(never, cond("Ready", "False")), nil,
			healthrule.Result{U, "MatchedCondition", "condition status: False, message: refused"}},
		"multi: U=0 H=1": {ready, both(and(cond("Ready", "True"), field("status.phase", healthrule.Exists, "")), never), nil,
			healthrule.Result{H, "MatchedCondition", "condition status: True, message: up"}},
		"multi: H=1 by field": {ready, both(field("status.phase", healthrule.Exists, ""), never), nil, healthrule.Result{H, "MatchedField", "field value: Done"}},
		"multi: U=0 H=0":      {ready, both(and(cond("Ready", "True"), field("status.phase", healthrule.In, "", "Other")), never), nil, healthrule.Result{X, "NoMatchesFulfilled", ""}},
		"multi: path errors are told": {ready, both(field("status.phase[0]", healthrule.Exists, ""), never), nil,
			healthrule.Result{X, "NoMatchesFulfilled", `evaluating path "status.phase[0]": string is not array or slice`}},
		"multi: nonstandard status is legal": {"status: {conditions: [{type: Ready, status: Sometimes, message: hm}]}", both(cond("Ready", "Sometimes"), never), nil,
			healthrule.Result{H, "MatchedCondition", "condition status: Sometimes, message: hm"}},
		"multi: broken message path": {ready, both(field("status.phase", healthrule.Exists, ".status.nope"), never), nil,
			healthrule.Result{H, "MatchedField", "field value: Done, message: unknown, error retrieving message path [.status.nope]"}},
		"multi: value not retrievable": {ready, both(field("status.nope", healthrule.DoesNotExist, ".status.detail"), never), nil,
			healthrule.Result{H, "MatchedField", "field value: <error retrieving field value>, message: all good"}},
		"multi: seed's App, Unknown": {"metadata: {generation: 6}\nstatus: {observedGeneration: 6}", seedApp(), nil, healthrule.Result{X, "NoMatchesFulfilled", ""}},
		"multi: seed's App, failed": {"metadata: {generation: 6}\nstatus: {observedGeneration: 6, usefulErrorMessage: boom, conditions: [{type: ReconcileFailed, status: 'True'}]}", seedApp(), nil,
			healthrule.Result{U, "MatchedField", "field value: True, message: boom"}},

		"no rule, exists": {"metadata: {name: x}", nil, nil, healthrule.Result{H, "NoRule", ""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := healthrule.Evaluate(object(t, tt.obj), tt.rule, tt.readErr)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Evaluate (-want +got):\n%s", diff)
			}
		})
	}
}

func mismatch(observed, generation string) healthrule.Result {
	return healthrule.Result{
		State: healthrule.Unknown, Reason: "ObservedGenerationMismatch",
		Message: "observed generation at [.status.observedGeneration] is " + observed + ", generation is " + generation,
	}
}

func seedApp() *healthrule.Rule {
	return gated(*both(cond("ReconcileSucceeded", "True"),
		field(`status.conditions[?(@.type=="ReconcileFailed")].status`, healthrule.In, ".status.usefulErrorMessage", "True")), ".status.observedGeneration")
}

// TestOperatorTable has one row for each kind of path result, evaluated by all
// four operators. The columns are In, NotIn, Exists, DoesNotExist, with the
// values "yes", "3" and "true" listed.
func TestOperatorTable(t *testing.T) {
	const obj = `
top: {scalar: text, "null": null, list: [1], map: {a: 1}, empty: ""}
good: good
bad: bad
"null": null
three: 3
threeFloat: 3.0
half: 0.5
four: 4
"t": true
"f": false
items: [{name: a, v: good}, {name: b, v: good}]
`
	tests := map[string]struct {
		path string
		want [4]bool
	}{
		"missing key":                       {"nope", [4]bool{false, false, false, true}},
		"missing key below missing":         {"nope.deeper", [4]bool{false, false, false, true}},
		"key below a scalar":                {"top.scalar.deeper", [4]bool{false, false, false, true}},
		"key below null":                    {"top.null.deeper", [4]bool{false, false, false, true}},
		"filter without hit":                {`items[?(@.name=="z")].v`, [4]bool{false, false, false, true}},
		"filter on an absent list":          {`absent[?(@.name=="z")].v`, [4]bool{false, false, false, true}},
		"explicit null":                     {"null", [4]bool{false, true, false, true}},
		"string in values":                  {"good", [4]bool{true, false, true, false}},
		"string not in values":              {"bad", [4]bool{false, true, true, false}},
		"empty string":                      {"top.empty", [4]bool{false, true, true, false}},
		"number, canonical text listed":     {"three", [4]bool{true, false, true, false}},
		"whole float, canonical text":       {"threeFloat", [4]bool{true, false, true, false}},
		"number not listed":                 {"four", [4]bool{false, true, true, false}},
		"fraction not listed":               {"half", [4]bool{false, true, true, false}},
		"bool, canonical text listed":       {"t", [4]bool{true, false, true, false}},
		"bool not listed":                   {"f", [4]bool{false, true, true, false}},
		"object":                            {"top.map", [4]bool{false, true, true, false}},
		"list":                              {"top.list", [4]bool{false, true, true, false}},
		"several results":                   {"items[*].v", [4]bool{}},
		"several hits of a filter":          {`items[?(@.v=="good")].name`, [4]bool{}},
		"index on a scalar":                 {"top.scalar[0]", [4]bool{}},
		"index out of range":                {"items[7].v", [4]bool{}},
		"filter on a scalar":                {`top.scalar[?(@.name=="a")]`, [4]bool{}},
		"filter on null":                    {`top.null[?(@.name=="a")]`, [4]bool{}},
		"bad path":                          {"items[", [4]bool{}},
		"one hit of a filter, single quote": {`items[?(@.name=='a')].v`, [4]bool{true, false, true, false}},
		"one hit of a filter, double quote": {`items[?(@.name=="a")].v`, [4]bool{true, false, true, false}},
	}
	operators := []healthrule.Operator{healthrule.In, healthrule.NotIn, healthrule.Exists, healthrule.DoesNotExist}
	for name, tt := range tests {
		for i, op := range operators {
			t.Run(name+" "+string(op), func(t *testing.T) {
				values := []string{"good", "3", "true"}
				if op == healthrule.Exists || op == healthrule.DoesNotExist {
					values = nil
				}
				side := field(tt.path, op, "", values...)
				asHealthy := healthrule.Evaluate(object(t, obj), both(side, never), nil)
				if got := asHealthy.State == healthrule.Healthy; got != tt.want[i] {
					t.Errorf("among healthy: fulfilled = %v, want %v (%+v)", got, tt.want[i], asHealthy)
				}
				asUnhealthy := healthrule.Evaluate(object(t, obj), both(never, side), nil)
				if got := asUnhealthy.State == healthrule.Unhealthy; got != tt.want[i] {
					t.Errorf("among unhealthy: matched = %v, want %v (%+v)", got, tt.want[i], asUnhealthy)
				}
			})
		}
	}
}

// TestWholeNumbers: as a client decodes them, which YAML does otherwise; and an operator
// that no rule can have holds for nothing.
func TestWholeNumbers(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"generation": int64(4)}, "status": map[string]any{"observedGeneration": int64(4)},
	}}
	rule := gated(*both(field("status.observedGeneration", healthrule.In, "", "4"), never), ".status.observedGeneration")
	if got := healthrule.Evaluate(obj, rule, nil); got.State != healthrule.Healthy {
		t.Errorf("%+v", got)
	}
	if got := healthrule.Evaluate(obj, both(field("metadata", "Is", "", "4"), never), nil); got.State != healthrule.Unknown {
		t.Errorf("an unknown operator: %+v", got)
	}
}

// TestConditionOf: of an object that is not there, or lacks it, there is none.
func TestConditionOf(t *testing.T) {
	if c, ok := healthrule.ConditionOf(object(t, ready), "Failed"); !ok || c.Message != "nope" {
		t.Errorf("%+v %t", c, ok)
	}
	if _, ok := healthrule.ConditionOf(object(t, ready), "Other"); ok {
		t.Error("a condition that the object lacks")
	}
	if _, ok := healthrule.ConditionOf(nil, "Ready"); ok {
		t.Error("a condition of no object")
	}
}

// TestEmptyStringListed: "" is a value like any other.
func TestEmptyStringListed(t *testing.T) {
	obj := object(t, `v: ""`)
	if got := healthrule.Evaluate(obj, both(field("v", healthrule.In, "", ""), never), nil); got.State != healthrule.Healthy {
		t.Errorf("In: %+v, want Healthy", got)
	}
	if got := healthrule.Evaluate(obj, both(field("v", healthrule.NotIn, "", ""), never), nil); got.State != healthrule.Unknown {
		t.Errorf("NotIn: %+v, want Unknown", got)
	}
}

// TestPathWrapping: braces and the leading dot are optional.
func TestPathWrapping(t *testing.T) {
	obj := object(t, "a: {b: hit}")
	for _, path := range []string{"a.b", ".a.b", "{.a.b", "a.b}", "{.a.b}", "{a.b}", "$.a.b", " .a.b "} {
		if got := healthrule.Evaluate(obj, both(field(path, healthrule.In, "", "hit"), never), nil); got.State != healthrule.Healthy {
			t.Errorf("path %q: %+v, want Healthy", path, got)
		}
	}
}

func TestAfter(t *testing.T) {
	unknown := healthrule.Result{State: healthrule.Unknown, Reason: "ReadyCondition", Message: "soon"}
	timedOut := healthrule.Result{State: healthrule.Unhealthy, Reason: "UnknownTimeout", Message: "no result within 1m0s, most recently: soon"}
	healthy := healthrule.Result{State: healthrule.Healthy}
	tests := map[string]struct {
		in      healthrule.Result
		age     time.Duration
		timeout time.Duration
		want    healthrule.Result
	}{
		"young":           {unknown, time.Minute, time.Minute, unknown},
		"too old":         {unknown, time.Minute + 1, time.Minute, timedOut},
		"waits for ever":  {unknown, 1000 * time.Hour, 0, unknown},
		"a verdict stays": {healthy, time.Hour, time.Minute, healthy},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.in.After(tt.age, tt.timeout)); diff != "" {
				t.Errorf("After (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzEvaluate: no path and no object makes the evaluator panic.
func FuzzEvaluate(f *testing.F) {
	for _, path := range []string{"a.b", `{.items[?(@.name=="a")].v}`, "[0]", "..", "a[1:2:0]", "[?(@)]", "['a']", "{range .a}", "a[?(@.b>3)]", "$", "@", "a[0,1]", "-1", `"x"`} {
		f.Add(path, `{"a":{"b":[1,null,"x"]},"items":[{"n":"a","v":true}]}`)
	}
	f.Fuzz(func(t *testing.T, path, doc string) {
		var m map[string]any
		if err := json.Unmarshal([]byte(doc), &m); err != nil || m == nil {
			return
		}
		rule := both(field(path, healthrule.Exists, path), field(path, healthrule.In, path, "x"))
		rule.ObservedGenerationPath = path
		got := healthrule.Evaluate(&unstructured.Unstructured{Object: m}, rule, nil)
		if got.State == "" {
			t.Errorf("no state for path %q on %s", path, doc)
		}
	})
}
