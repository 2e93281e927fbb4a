package healthrule_test

import (
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/healthrule"
)

func TestValidate(t *testing.T) {
	ok := cond("Ready", "True")
	tests := map[string]struct {
		rule healthrule.Rule
		want string // part of the error; "" is valid
	}{
		"alwaysHealthy":               {*always, ""},
		"single":                      {healthrule.Single("Ready"), ""},
		"multi":                       {*both(ok, ok), ""},
		"a condition and a field":     {*both(and(ok, field("a", healthrule.Exists, "")), ok), ""},
		"nothing":                     {healthrule.Rule{}, "exactly one of"},
		"empty single is unset":       {healthrule.Single(""), "0 are set"},
		"two variants":                {healthrule.Rule{AlwaysHealthy: &healthrule.Always{}, SingleConditionType: "Ready"}, "2 are set"},
		"healthy side empty":          {*both(healthrule.Matchers{}, ok), "multiMatch.healthy: at least one matcher"},
		"unhealthy side empty":        {*both(ok, healthrule.Matchers{}), "multiMatch.unhealthy: at least one matcher"},
		"condition without status":    {*both(cond("Ready", ""), ok), "matchConditions[0]: type and status"},
		"In without values":           {*both(field("a", healthrule.In, ""), ok), "operator In needs values"},
		"NotIn without values":        {*both(ok, field("a", healthrule.NotIn, "")), "operator NotIn needs values"},
		"Exists with values":          {*both(field("a", healthrule.Exists, "", "x"), ok), "operator Exists takes no values"},
		"DoesNotExist with values":    {*both(field("a", healthrule.DoesNotExist, "", "x"), ok), "operator DoesNotExist takes no values"},
		"unknown operator":            {*both(field("a", "Is", "", "x"), ok), `operator "Is"`},
		"empty key":                   {*both(field("", healthrule.Exists, ""), ok), "path is empty"},
		"key does not parse":          {*both(field("a[", healthrule.Exists, ""), ok), "matchFields[0].key: parsing path"},
		"message path does not parse": {*both(field("a", healthrule.Exists, "b["), ok), "messagePath: parsing path"},
		"gate does not parse":         {*gated(*always, "x["), "observedGenerationPath: parsing path"},
		"two expressions":             {*both(field("{.a}{.b}", healthrule.Exists, ""), ok), "exactly one expression"},
		"a loop":                      {*both(field("{$range .a}", healthrule.Exists, ""), ok), "range and end are not allowed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.rule.Validate()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Validate = %v, want none", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Validate = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidateJoinsAllProblems(t *testing.T) {
	rule := both(field("", "Is", ""), healthrule.Matchers{})
	err := rule.Validate()
	for _, part := range []string{"path is empty", `operator "Is"`, "multiMatch.unhealthy"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Validate = %v, want it to name %q", err, part)
		}
	}
}

func TestResolve(t *testing.T) {
	if _, err := healthrule.Resolve(nil, ""); err == nil {
		t.Error("neither: no error")
	}
	if _, err := healthrule.Resolve(always, "Ready"); err == nil {
		t.Error("both: no error")
	}
	if _, err := healthrule.Resolve(&healthrule.Rule{}, ""); err == nil {
		t.Error("invalid rule: no error")
	}
	got, err := healthrule.Resolve(nil, "Ready")
	if err != nil {
		t.Fatalf("Resolve: %v", err)
	}
	if diff := cmp.Diff(healthrule.Rule{SingleConditionType: "Ready"}, got); diff != "" {
		t.Errorf("shorthand (-want +got):\n%s", diff)
	}
}

func TestWarnings(t *testing.T) {
	bare := field("status.failure", healthrule.DoesNotExist, "")
	if got := both(bare, never).Warnings(); len(got) != 1 {
		t.Errorf("DoesNotExist without a gate: warnings = %q, want one", got)
	}
	if got := gated(*both(bare, never), ".status.observedGeneration").Warnings(); len(got) != 0 {
		t.Errorf("gated: warnings = %q, want none", got)
	}
	for _, other := range []healthrule.Matchers{field("status.failure", healthrule.Exists, ""), field("spec.paused", healthrule.DoesNotExist, "")} {
		if got := both(other, never).Warnings(); len(got) != 0 {
			t.Errorf("%+v: warnings = %q, want none", other, got)
		}
	}
	if got := both(never, bare).Warnings(); len(got) != 0 {
		t.Errorf("unhealthy side: warnings = %q, want none", got)
	}
}

func TestDecodeTOML(t *testing.T) {
	const doc = `
observedGenerationPath = ".status.observedGeneration"
[multiMatch.healthy]
matchConditions = [{type = "NodeReady", status = "True"}]
[[multiMatch.unhealthy.matchFields]]
key = 'status.conditions[?(@.type=="Failed")].status'
operator = "In"
values = ["True"]
messagePath = ".status.message"
`
	var got healthrule.Rule
	meta, err := toml.Decode(doc, &got)
	if err != nil {
		t.Fatalf("decoding: %v", err)
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		t.Errorf("undecoded keys %v", keys)
	}
	want := *gated(*both(cond("NodeReady", "True"), field(`status.conditions[?(@.type=="Failed")].status`, healthrule.In, ".status.message", "True")), ".status.observedGeneration")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	var bare healthrule.Rule
	if _, err := toml.Decode("alwaysHealthy = {}", &bare); err != nil || bare.AlwaysHealthy == nil {
		t.Errorf("alwaysHealthy = {}: %+v, %v", bare, err)
	}
}
