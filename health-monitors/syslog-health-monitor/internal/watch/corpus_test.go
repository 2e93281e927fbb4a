package watch

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
)

// story is lines and what they make.
type story struct {
	at          int
	lines, want []string
}

// stories reads the table of lines.
func stories(t *testing.T) (out []story) {
	t.Helper()
	data, err := os.ReadFile("testdata/corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	ended := true
	for i, line := range strings.Split(string(data), "\n") {
		made, isWant := strings.CutPrefix(line, "-> ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case isWant:
			if ended = true; made != "nothing" {
				out[len(out)-1].want = append(out[len(out)-1].want, made)
			}
			continue
		case ended:
			out, ended = append(out, story{at: i + 1}), false
		}
		s := &out[len(out)-1]
		s.lines = append(s.lines, strings.NewReplacer(`\x1b`, "\x1b", `\x0a`, "\n").Replace(line))
	}
	return out
}

// made writes an event down as the table does.
func made(e *protos.HealthEvent) string {
	r := record.FromProto(e)
	words := []string{r.CheckName, strings.Join(r.ErrorCode, "+"), string(r.RecommendedAction)}
	for word, is := range map[string]bool{"fatal": r.IsFatal, "healthy": r.IsHealthy} {
		if is {
			words = append(words, word)
		}
	}
	if r.ProcessingStrategy == record.PersistOnly {
		words = append(words, "persist-only")
	}
	for _, x := range r.EntitiesImpacted {
		if x.EntityType == "GPU_UUID" {
			words = append(words, "GPU_UUID")
			continue
		}
		words = append(words, x.EntityType+"="+x.EntityValue)
	}
	return strings.Join(words, " ")
}

// TestLinesAsTheyAreWritten: each line of the table makes the events that the table lists.
func TestLinesAsTheyAreWritten(t *testing.T) {
	n := newNode(t)
	n.policy.GPUs = placesOfGPUs(t)
	n.start()
	n.passes()
	total := 0
	for _, s := range stories(t) {
		fresh := newState()
		fresh.Boot = n.m.state.Boot
		n.m.state = fresh
		var lines []source.Line
		for _, text := range s.lines {
			lines = append(lines, kernelLine(text))
		}
		total += len(lines)
		taken, err := n.m.commitLines(lines)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range taken.events {
			got = append(got, made(e))
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("corpus.txt:%d: %s\n(-want +got):\n%s", s.at, strings.Join(s.lines, "\n"), diff)
		}
	}
	if total < 100 {
		t.Errorf("the table has %d lines", total)
	}
}

// BenchmarkWords measures lines without and with something to report. The case "floor" is
// one search for one text that is not in the line.
func BenchmarkWords(b *testing.B) {
	m := &Monitor{Policy: Policy{Catalogue: builtin}}
	b.Run("floor", func(b *testing.B) {
		text, found := "Mar  1 12:00:00 gpu-1 kernel: [  100.000000] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready", false
		for b.Loop() {
			found = found || strings.Contains(text, driver)
		}
		if found {
			b.Fatal("the text is in the line")
		}
	})
	for name, text := range map[string]string{
		"quiet":  "Mar  1 12:00:00 gpu-1 kernel: [  100.000000] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
		"driver": "[  903.609564] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
		"long":   strings.Repeat("nvme nvme0 ", 6000),
	} {
		b.Run(name, func(b *testing.B) {
			line := source.Line{Text: text}
			for b.Loop() {
				if m.speaks(line) {
					_ = m.Policy.Catalogue.Patterns.Find(line.Text, 0, &m.state.Patterns)
				}
			}
			b.ReportMetric(float64(len(text)), "bytes/line")
		})
	}
}

// TestLinesAreCheap: what a quiet line costs does not depend on the machine's
// speed but on how often its text is gone through.
func TestLinesAreCheap(t *testing.T) {
	m := &Monitor{Policy: Policy{Catalogue: builtin}}
	quiet := source.Line{Text: "Mar  1 12:00:00 gpu-1 kernel: [  100.000000] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready"}
	if allocs := testing.AllocsPerRun(100, func() { _ = m.speaks(quiet) }); m.speaks(quiet) || allocs > 1 {
		t.Errorf("a quiet line: speaks %t, %v allocations", m.speaks(quiet), allocs)
	}
	long := source.Line{Text: strings.Repeat("(Fatal", 10_000) + ")"}
	if m.speaks(long) {
		t.Error("more than the beginning of a line is looked at")
	}
}
