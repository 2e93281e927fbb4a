package rule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// TestBounds: the last value that a file may have is accepted, and the first beyond it
// refused; want is the error's text, empty if there is none.
func TestBounds(t *testing.T) {
	with := func(key, value string) string {
		var out []string
		for line := range strings.Lines(good) {
			if !strings.HasPrefix(line, key+" ") {
				out = append(out, line)
			}
		}
		return strings.Join(out, "") + key + " = " + value + "\n"
	}
	named := func(n int) string { return with("name", `"`+strings.Repeat("x", n)+`"`) }
	cluster := func(window string) string { return with("window", window) + "scope = \"cluster\"\n" }
	register := func(name, bits string) string {
		return good + fmt.Sprintf("[rules.when.register]\nname = %q\nbits = %s\n", name, bits)
	}
	const (
		twoSteps = "[[rules.sequence]]\ncodes = [\"13\"]\n[[rules.sequence]]\ncodes = [\"79\"]\n"
		alone    = "[rules.bursts]\ngap = \"3m\"\nlast = \"alone\"\n"
	)
	for _, tt := range []struct{ name, text, want string }{
		{"a name of 1 character", named(1), ""},
		{"a name of 200 characters", named(200), ""},
		{"a name of 201 characters", named(201), "name: "},
		{"no name", named(0), `rules[0] (""): name: "" is not a check name: use 1 to 200 characters`},
		{"a window of 1 ns", with("window", `"1ns"`), ""},
		{"a window of 30 days", with("window", `"720h"`), ""},
		{"a window of more than 30 days", with("window", `"720h0m0.000000001s"`), "window: is 720h0m0.000000001s: use a duration between 1ns and 720h"},
		{"a cluster's window of a day", cluster(`"24h"`), ""},
		{"a cluster's window of more than a day", cluster(`"24h0m0.000000001s"`), "window: is 24h0m0.000000001s with scope"},
		{"no count", with("count", "0"), ""},
		{"a count of 10000", with("count", "10000"), ""},
		{"a count of 10001", with("count", "10001"), "count: is 10001: use 1 to 10000"},
		{"a sequence of two steps", good + twoSteps, ""},
		{"a sequence, counted once", with("count", "1") + twoSteps, ""},
		{"a sequence, counted twice", with("count", "2") + twoSteps, "sequence: requires at least two steps, and excludes of and count"},
		{"a sequence of one step", good + "[[rules.sequence]]\ncodes = [\"13\"]\n", "sequence: requires at least two steps"},
		{"a sequence and of", good + "[rules.of]\ncodes = [\"13\"]\n" + twoSteps, "sequence: requires at least two steps, and excludes of and count"},
		{"bursts without sticky codes", good + "[rules.bursts]\ngap = \"1ns\"\n", ""},
		{"time for sticky codes, and none", good + "[rules.bursts]\ngap = \"3m\"\nstickyWithin = \"1h\"\n", "bursts.stickyWithin: is 1h0m0s with 0 sticky codes"},
		{"the last burst alone", good + alone, ""},
		{"the last burst alone, of one", with("count", "1") + alone, ""},
		{"the last burst alone, of two", with("count", "2") + alone, "bursts.last: alone means one burst, and count is 2"},
		{"the first register", register("REG0", "[0]"), ""},
		{"the last register", register("REG6", "[31]"), ""},
		{"a register after the last", register("REG7", "[0]"), `when.register.name: "REG7" is not one of REG0 to REG6`},
		{"a register before the first", register("REG/", "[0]"), `when.register.name: "REG/" is not one of`},
		{"a register without a number", register("REG", "[0]"), `when.register.name: "REG" is not one of`},
		{"a register of two digits", register("REG01", "[0]"), `when.register.name: "REG01" is not one of`},
		{"a register of another name", register("GPU0", "[0]"), `when.register.name: "GPU0" is not one of`},
		{"a bit before the first", register("REG0", "[-1]"), "when.register.bits: -1 is not a bit of 0 to 31"},
		{"no bit", register("REG0", "[]"), "when.register.bits: is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := rule.Parse("f.toml", []byte(tt.text))
			if tt.want == "" && (err != nil || len(rules) != 1) {
				t.Errorf("%d rules, %v", len(rules), err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
