package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

var programs = sync.OnceValues(func() (map[string][]Metric, error) { return Programs(filepath.Join("..", "..")) })

func TestMetricsPage(t *testing.T) {
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "docs/reference/metrics.md", Page(all))
}

// TestHelpTexts: each begins with a capital letter or a number, and is one or more sentences.
func TestHelpTexts(t *testing.T) {
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	for program, metrics := range all {
		for _, m := range metrics {
			if !helpForm.MatchString(m.Help) {
				t.Errorf("%s: the help of %s has to begin with a capital letter, end with a period, and have no semicolon: %q", program, m.Name, m.Help)
			}
		}
	}
	for help, want := range map[string]bool{"Open faults, by check.": true, "1 while the node waits.": true, "open faults.": false, "Open faults": false, "Nodes; held.": false} {
		if got := helpForm.MatchString(help); got != want {
			t.Errorf("%q: %v, want %v", help, got, want)
		}
	}
}

var helpForm = regexp.MustCompile(`^[A-Z0-9][^;]*\.$`)

// TestPagesNameMetricsThatExist: every metric name of the project in a page, a chart or an
// example exists. Two words of a name mark a text as such a name.
func TestPagesNameMetricsThatExist(t *testing.T) {
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	known, begins := map[string]bool{}, map[string]bool{}
	for _, metrics := range all {
		for _, m := range metrics {
			known[m.Name] = true
			begins[first(m.Name)] = true
			if m.Type == "histogram" {
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					known[m.Name+suffix] = true
				}
			}
		}
	}
	cmd := exec.Command("git", "ls-files", "*.md", "*.yaml", "*.yml", "*.json", "*.tpl", "*.txt")
	cmd.Dir = filepath.Join("..", "..")
	files, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	word, named := regexp.MustCompile(`\b[a-z][a-z0-9]*(_[a-z0-9]+){2,}\b`), 0
	for file := range strings.FieldsSeq(string(files)) {
		if file == "cli/convert/names.yaml" || file == "CHANGELOG.md" {
			continue // they name what an earlier version had
		}
		text, err := os.ReadFile(filepath.Join(cmd.Dir, file))
		if err != nil {
			continue // taken away and not committed
		}
		for line := range strings.Lines(string(text)) {
			for _, name := range word.FindAllString(withoutPredecessor(file, line), -1) {
				if begins[first(name)] {
					named++
				}
				if begins[first(name)] && !known[name] {
					t.Errorf("%s names the metric %s, which no program has", file, name)
				}
			}
		}
	}
	if named < len(known) {
		t.Errorf("only %d names of metrics were found in the pages: were they looked for?", named)
	}
}

// withoutPredecessor leaves out what the earlier NVSentinel had and this one calls otherwise.
func withoutPredecessor(file, line string) string {
	there, here, row := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
	if file != "docs/reference/predecessor-names.md" || !row {
		return line
	}
	if strings.HasPrefix(here, "the same") {
		return there + here
	}
	return here
}

// first is the first two words of a name.
func first(name string) string {
	words := strings.SplitN(name, "_", 3)
	return strings.Join(words[:min(2, len(words))], "_")
}
