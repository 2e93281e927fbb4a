package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

func confirming(c Confirmation) Config {
	out := Default()
	out.Stages, out.Confirmation = []string{StageConfirmation}, c
	return out
}

func TestWaitingFaults(t *testing.T) {
	rule := ConfirmRule{Name: "r", When: `"79" in event.errorCode`, Second: `event.checkName == "GpuAllWatch"`, Within: time.Minute}
	mutual := rule
	mutual.Mutual = true
	for name, tc := range map[string]struct {
		rule   ConfirmRule
		change func(*record.Event)
		waits  bool
		second bool
		only   bool // PERSIST_ONLY in the end
	}{
		"the fault":                     {rule, func(*record.Event) {}, true, false, true},
		"another code":                  {rule, func(e *record.Event) { e.ErrorCode = []string{"31"} }, false, false, false},
		"another code beside it":        {rule, func(e *record.Event) { e.ErrorCode = []string{"79", "31"} }, false, false, false},
		"a recovery":                    {rule, func(e *record.Event) { e.IsHealthy = true }, false, false, false},
		"for the record only":           {rule, func(e *record.Event) { e.ProcessingStrategy = record.PersistOnly }, false, false, true},
		"of an agent of all nodes":      {rule, func(e *record.Event) { e.Agent = "wide" }, false, false, false},
		"the second":                    {rule, func(e *record.Event) { e.CheckName, e.ErrorCode = "GpuAllWatch", nil }, false, true, false},
		"the second of both":            {mutual, func(e *record.Event) { e.CheckName, e.ErrorCode = "GpuAllWatch", nil }, false, true, true},
		"a rule that cannot be judged":  {ConfirmRule{Name: "r", When: `event.metadata["x"] == ""`, StandsFor: time.Second}, func(*record.Event) {}, false, false, false},
		"one that says it is confirmed": {rule, func(e *record.Event) { e.ID, e.Metadata = confirmation(t), map[string]string{"confirms": anID} }, false, false, false},
		"one that lies":                 {rule, func(e *record.Event) { e.Metadata = map[string]string{"confirms": anID} }, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := confirming(Confirmation{Rules: []ConfirmRule{tc.rule}})
			c.ClusterWide = []string{"wide"}
			p, err := Compile(c)
			if err != nil {
				t.Fatal(err)
			}
			e := xid()
			tc.change(&e)
			given := fmt.Sprint(e)
			got, notes := p.Apply(e, nil)
			if (notes.Waits != nil) != tc.waits || (notes.SecondOf != nil) != tc.second || (got.ProcessingStrategy == record.PersistOnly) != tc.only {
				t.Errorf("it is %s, %+v", got.ProcessingStrategy, notes)
			}
			if fmt.Sprint(e) != given {
				t.Error("the event that was given is changed")
			}
		})
	}
}

// TestEachOfTwoWaitsForTheOther: each event names the signal that it waits for.
func TestEachOfTwoWaitsForTheOther(t *testing.T) {
	first, second := `"79" in event.errorCode`, `event.checkName == "GpuAllWatch"`
	p, err := Compile(confirming(Confirmation{Rules: []ConfirmRule{{Name: "r", When: first, Second: second, Mutual: true, Within: time.Minute, Reports: 3}}}))
	if err != nil {
		t.Fatal(err)
	}
	e := xid()
	for want, e := range map[string]record.Event{second: e, first: {CheckName: "GpuAllWatch", ProcessingStrategy: record.Process, IsFatal: true}} {
		got, _ := p.Apply(e, nil)
		what, within, ok := got.Waits()
		if !ok || within != time.Minute || !strings.Contains(what, "("+want+")") || strings.Contains(what, "reports") != (want == second) {
			t.Errorf("%s waits for %q", e.CheckName, what)
		}
	}
}

const anID = "019a1b2c-3d4e-7f01-8234-56789abcdef0"

func confirmation(t *testing.T) string {
	t.Helper()
	id, err := record.ConfirmationID(anID)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestWaitMessage: repeats have the same text, so that they are counted.
func TestWaitMessage(t *testing.T) {
	p, err := Compile(confirming(Confirmation{Rules: []ConfirmRule{{
		Name: "r", When: "true", Second: `event.checkName == "GpuAllWatch"`, Within: time.Minute, Reports: 3, StandsFor: time.Hour,
	}}}))
	if err != nil {
		t.Fatal(err)
	}
	e, _ := p.Apply(xid(), nil)
	want := map[string]string{
		"seq": "4", "seqEpoch": "e", "bootID": "b", "strategyReason": "Unconfirmed", "unconfirmedRule": "r", "waitsWithin": "1h0m0s",
		"waitsFor": `a second signal about the same device within 1m0s (event.checkName == "GpuAllWatch"), or 3 reports of the fault within 1m0s, or the fault to stay open for 1h0m0s`,
	}
	if diff := cmp.Diff(want, e.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	full := xid()
	for i := range admission.MaxMetadata {
		full.Metadata[fmt.Sprint("label-", i)] = "x"
	}
	e, _ = p.Apply(full, nil)
	if len(e.Metadata) != admission.MaxMetadata || e.Metadata["waitsFor"] == "" || e.Metadata["seq"] != "4" || e.Metadata["bootID"] != "b" {
		t.Errorf("%d entries: %v", len(e.Metadata), e.Metadata)
	}
}

// TestWhetherFaultsAreConfirmed: the stage and a rule are needed; the defaults are rules.
func TestWhetherFaultsAreConfirmed(t *testing.T) {
	var most []ConfirmRule
	for i := range maxConfirmRules {
		most = append(most, ConfirmRule{Name: fmt.Sprint(i), When: "true", StandsFor: time.Minute})
	}
	for name, tc := range map[string]struct {
		stages []string
		with   Confirmation
		want   bool
	}{
		"no rule":       {[]string{StageConfirmation}, Confirmation{}, false},
		"a rule":        {[]string{StageConfirmation}, Confirmation{Rules: most[:1]}, true},
		"all rules":     {[]string{StageConfirmation}, Confirmation{Rules: most}, true},
		"the defaults":  {[]string{StageConfirmation}, Confirmation{Defaults: true}, true},
		"without stage": {nil, Confirmation{Rules: most[:1]}, false},
	} {
		c := confirming(tc.with)
		c.Stages = tc.stages
		p, err := Compile(c)
		if err != nil || p.Confirms() != tc.want {
			t.Errorf("%s: confirms %t, %v", name, err == nil && p.Confirms(), err)
		}
	}
}

func TestConfirmationIsValidated(t *testing.T) {
	ok := ConfirmRule{Name: "r", When: "true", StandsFor: time.Minute}
	for name, tc := range map[string]struct {
		rules []ConfirmRule
		want  string
	}{
		"no name":         {[]ConfirmRule{{When: "true", StandsFor: 1}}, "name is empty"},
		"two of a name":   {[]ConfirmRule{ok, ok}, `name "r" is a duplicate`},
		"all faults":      {[]ConfirmRule{{Name: "r", StandsFor: 1}}, "when is empty"},
		"nothing":         {[]ConfirmRule{{Name: "r", When: "true"}}, "the rule has no confirmation"},
		"no window":       {[]ConfirmRule{{Name: "r", When: "true", Second: "true"}}, "within 0s"},
		"a long window":   {[]ConfirmRule{{Name: "r", When: "true", Reports: 2, Within: 25 * time.Hour}}, "within 25h0m0s"},
		"a useless one":   {[]ConfirmRule{{Name: "r", When: "true", StandsFor: 1, Within: 1}}, "within requires"},
		"one report":      {[]ConfirmRule{{Name: "r", When: "true", Reports: 1, Within: 1}}, "reports 1"},
		"about what":      {[]ConfirmRule{{Name: "r", When: "true", StandsFor: 1, About: "rack"}}, `about "rack"`},
		"mutual alone":    {[]ConfirmRule{{Name: "r", When: "true", StandsFor: 1, Mutual: true}}, "mutual requires second"},
		"no expression":   {[]ConfirmRule{{Name: "r", When: "event.", StandsFor: 1}}, `rule "r".when`},
		"no second of it": {[]ConfirmRule{{Name: "r", When: "true", Second: "1", Within: 1}}, `rule "r".second`},
		"too many":        {make([]ConfirmRule, maxConfirmRules+1), "65 rules, at most 64"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Compile(confirming(Confirmation{Rules: tc.rules})); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v does not say %q", err, tc.want)
			}
		})
	}
	if _, err := Compile(confirming(Confirmation{Rules: []ConfirmRule{ok}, Defaults: true})); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
