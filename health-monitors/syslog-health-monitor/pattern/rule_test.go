package pattern

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// good is a rule with which nothing is wrong.
func good() Rule {
	r := Blank()
	r.Name, r.Check, r.Class, r.Contains, r.Match = "link_down", "SysLogsLink", "NIC", "link", "link down"
	return r
}

// TestRuleValidation: each key within its bounds, and what is wrong with it beyond them.
func TestRuleValidation(t *testing.T) {
	expression := func(n int) string { return "link" + strings.Repeat("x", n-4) }
	for name, c := range map[string]struct {
		change func(*Rule)
		wrong  string // key and a part of the text; empty: nothing
	}{
		"a good rule":                   {func(*Rule) {}, ""},
		"a name with a blank":           {func(r *Rule) { r.Name, r.Code = "link down", "x" }, `name: "link down" is not a name`},
		"a code with a blank":           {func(r *Rule) { r.Code = "link down" }, `code: "link down" is not a code`},
		"a check of another agent":      {func(r *Rule) { r.Check = "GpuMemWatch" }, `check: "GpuMemWatch" is not a check name that begins with SysLogs`},
		"the check of XIDs":             {func(r *Rule) { r.Check = "SysLogsXIDError" }, `check: "SysLogsXIDError" is not a check name`},
		"the check of SXIDs":            {func(r *Rule) { r.Check = "SysLogsSXIDError" }, `check: "SysLogsSXIDError" is not a check name`},
		"a class of two words":          {func(r *Rule) { r.Class = "a NIC" }, `componentClass: "a NIC" is not a word`},
		"no expression":                 {func(r *Rule) { r.Match = "" }, "match: has 0 bytes, use 1 to 2048"},
		"an expression of a byte":       {func(r *Rule) { r.Match = "l" }, ""},
		"the longest expression":        {func(r *Rule) { r.Match = expression(MaxExpression) }, ""},
		"a longer expression":           {func(r *Rule) { r.Match = expression(MaxExpression + 1) }, "match: has 2049 bytes, use 1 to 2048"},
		"an expression that is none":    {func(r *Rule) { r.Match = "(link" }, "match: error parsing regexp"},
		"an expression of all lines":    {func(r *Rule) { r.Match = "(link)?" }, "match: matches an empty line"},
		"a text of two bytes":           {func(r *Rule) { r.Contains = "li" }, `contains: "li" has less than 3 bytes`},
		"a text of three bytes":         {func(r *Rule) { r.Contains = "lin" }, ""},
		"a line before, within 0":       {func(r *Rule) { after(r, 0) }, "within: 0 is not in the range of 1 to 1000 lines"},
		"a line before, within 1":       {func(r *Rule) { after(r, 1) }, ""},
		"a line before, within 1000":    {func(r *Rule) { after(r, 1000) }, ""},
		"a line before, within 1001":    {func(r *Rule) { after(r, 1001) }, "within: 1001 is not in the range of 1 to 1000 lines"},
		"a line before without a text":  {func(r *Rule) { after(r, 1); r.AfterContains = "" }, "afterContains: "},
		"an action that is none":        {func(r *Rule) { r.Action = "REBOOT" }, "action: "},
		"fatal without an action":       {func(r *Rule) { r.Fatal = true }, "action: a fatal fault requires an action"},
		"fatal with an action":          {func(r *Rule) { r.Fatal, r.Action = true, record.ActionRestartBM }, ""},
		"a strategy":                    {func(r *Rule) { r.Strategy = record.PersistOnly }, ""},
		"a strategy that is none":       {func(r *Rule) { r.Strategy = "MAYBE" }, "processingStrategy: "},
		"a count of 0":                  {func(r *Rule) { r.Count = 0 }, "count: 0 is not in the range of 1 to 100"},
		"a count of 1 without a window": {func(r *Rule) { r.Count = 1 }, ""},
		"a count of 1 in a window":      {func(r *Rule) { counted(r, 1, time.Minute) }, "window: 1m0s is not above 0s and at most 168h0m0s, or count"},
		"a count of 2":                  {func(r *Rule) { counted(r, 2, time.Second) }, ""},
		"a count of 2, no window":       {func(r *Rule) { r.Count = 2 }, "window: 0s is not"},
		"the largest count":             {func(r *Rule) { counted(r, MaxCount, time.Minute) }, ""},
		"a larger count":                {func(r *Rule) { counted(r, MaxCount+1, time.Minute) }, "count: 101 is not in the range of 1 to 100"},
		"the longest window":            {func(r *Rule) { counted(r, 2, MaxWindow) }, ""},
		"a longer window":               {func(r *Rule) { counted(r, 2, MaxWindow+1) }, "window: 168h0m0.000000001s is not above 0s and at most 168h0m0s"},
		"a window that ends before":     {func(r *Rule) { r.Window = -1 }, "window: -1ns is not above 0s and at most 168h0m0s"},
		"no pause":                      {func(r *Rule) { r.Pause = 0 }, ""},
		"the longest pause":             {func(r *Rule) { r.Pause = MaxWindow }, ""},
		"a longer pause":                {func(r *Rule) { r.Pause = MaxWindow + 1 }, "pause: 168h0m0.000000001s is not in the range of 0s to 168h0m0s"},
		"a pause that ends before":      {func(r *Rule) { r.Pause = -1 }, "pause: -1ns is not in the range of 0s to 168h0m0s"},
		"a recovery":                    {func(r *Rule) { r.Clears = []string{"link_down", "flaps"} }, ""},
		"a recovery of no code":         {func(r *Rule) { r.Clears = []string{"link down"} }, `clears: "link down" is not a code`},
		"a recovery that is fatal": {func(r *Rule) {
			r.Clears, r.Fatal, r.Action = []string{"flaps"}, true, record.ActionRestartBM
		}, "clears: a recovery cannot be fatal"},
		"a recovery that is counted":   {func(r *Rule) { counted(r, 2, time.Minute); r.Clears = []string{"flaps"} }, "clears: a recovery cannot be fatal, counted"},
		"a time since the boot":        {func(r *Rule) { r.SinceBoot = MaxWindow }, ""},
		"a longer time since the boot": {func(r *Rule) { r.SinceBoot = MaxWindow + 1 }, "sinceBoot: 168h0m0.000000001s is not in the range of 0s to 168h0m0s"},
		"a time before the boot":       {func(r *Rule) { r.SinceBoot = -1 }, "sinceBoot: -1ns is not in the range of 0s to 168h0m0s"},
		"a match that is ignored":      {func(r *Rule) { r.Ignore = true }, ""},
		"one that is fatal":            {func(r *Rule) { r.Ignore, r.Fatal, r.Action = true, true, record.ActionRestartBM }, "ignore: an ignored match cannot be fatal"},
		"one that ends a fault":        {func(r *Rule) { r.Ignore, r.Clears = true, []string{"flaps"} }, "ignore: an ignored match cannot be fatal, end a fault"},
		"one that loses a GPU":         {func(r *Rule) { r.Ignore, r.Lost = true, true }, "ignore: an ignored match cannot be fatal, end a fault or lose a GPU"},
		"a GPU of the node":            {func(r *Rule) { r.KnownGPU, r.Class, r.Match = true, "GPU", "link (?P<PCI>x)" }, ""},
		"a port before a GPU":          {func(r *Rule) { r.KnownGPU, r.Class, r.Match = true, "GPU", "link (?P<PORT>x)" }, ""},
		"a GPU without its address":    {func(r *Rule) { r.KnownGPU, r.Class = true, "GPU" }, "knownGPU: componentClass is not GPU, or no group of match is named PCI or PORT"},
		"a card that is no GPU":        {func(r *Rule) { r.KnownGPU, r.Match = true, "link (?P<PCI>x)" }, "knownGPU: componentClass is not GPU"},
		"a recovery that loses a GPU": {func(r *Rule) {
			r.Clears, r.Lost = []string{"flaps"}, true
		}, "clears: a recovery cannot be fatal, counted or lose a GPU"},
	} {
		r := good()
		c.change(&r)
		_, problems := Compile([]Rule{r})
		var got string
		for _, p := range problems {
			if p.Rule != r.Name {
				t.Errorf("%s: a problem of rule %q", name, p.Rule)
			}
			got += fmt.Sprintf("%s: %s\n", p.Key, p.Err)
		}
		if len(problems) > 1 || (got == "") != (c.wrong == "") || !strings.HasPrefix(got, c.wrong) {
			t.Errorf("%s: %q, want %q", name, got, c.wrong)
		}
	}
}

func after(r *Rule, within int) { r.After, r.AfterContains, r.Within = "begins", "begins", within }

func counted(r *Rule, count int, window time.Duration) { r.Count, r.Window = count, window }

// TestRulesAreBounded: the first one too many is named.
func TestRulesAreBounded(t *testing.T) {
	for n, want := range map[int]int{MaxRules - 1: 0, MaxRules: 0, MaxRules + 1: 1} {
		rules := make([]Rule, n)
		for i := range rules {
			rules[i] = good()
			rules[i].Name = fmt.Sprint("r", i)
		}
		set, problems := Compile(rules)
		if len(problems) != want || (set == nil) != (want > 0) {
			t.Errorf("%d rules: %v", n, problems)
		}
		if want > 0 && (problems[0].Rule != "r256" || problems[0].Err.Error() != "there are more than 256 patterns") {
			t.Errorf("%d rules: %v", n, problems)
		}
	}
}

// TestOmittedKeys: a rule is looked for, a reboot ends its faults, each match counts, and
// a thing is reported once a minute, with nothing to be done.
func TestOmittedKeys(t *testing.T) {
	want := Rule{Enabled: true, RebootCures: true, Count: 1, Pause: time.Minute, Action: record.ActionNone}
	if got := Blank(); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v", got)
	}
}
