package faultquarantine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/internal/config"
)

// load reads a file and flags over the defaults.
func load(t *testing.T, text string, args ...string) Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := defaultConfig()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	set, err := config.Bind(flags, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse(append([]string{"--store", "sqlite:///x", "--single-host"}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := set.Load(file, os.LookupEnv); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func breaker(t *testing.T, c Config) budget.Limit {
	t.Helper()
	limits := c.quota().Limits
	if len(limits) == 0 || limits[0].Name != quota.Breaker {
		t.Fatalf("limits %+v", limits)
	}
	return limits[0]
}

func TestBreakerKeysOfExistingFiles(t *testing.T) {
	if l := breaker(t, load(t, "")); *l.Percentage != 50 || l.Duration != 5*time.Minute || l.Nodes != nil {
		t.Errorf("built in: %+v", l)
	}
	if l := breaker(t, load(t, "[circuitBreaker]\npercentage = 0\nduration = \"10m\"\n")); *l.Percentage != 0 || l.Duration != 10*time.Minute {
		t.Errorf("from the file: %+v", l)
	}
	if l := breaker(t, load(t, "")); *l.Percentage != 50 {
		t.Errorf("one file changes the defaults of the next: %d", *l.Percentage)
	}
	if q := load(t, "", "--circuit-breaker-enabled=false", "--default-budgets=false").quota(); len(q.Limits) != 0 {
		t.Errorf("switched off: %+v", q.Limits)
	}
	all := load(t, "[circuitBreaker]\nnodes = 3\nresetAt = 2026-01-02T03:04:05Z\n[[budgets]]\nname = \"zone\"\nlabel = \"z\"\nnodes = 1\n")
	if l := breaker(t, all); *l.Nodes != 3 || l.ResetAt.Year() != 2026 || len(all.quota().Limits) != 2 {
		t.Errorf("all keys: %+v", all.quota().Limits)
	}
}

// TestFullFileIsAccepted: every key has its documented meaning.
func TestFullFileIsAccepted(t *testing.T) {
	c := load(t, `
labelPrefix = "acme.example/"
dryRun = false
gpuNodeLabel = "a=b"
defaultBudgets = false
[kube]
qps = 5.0
[circuitBreaker]
percentage = 10
duration = "5m"
[[ruleSets]]
enabled = true
version = "1"
name = "mine"
priority = 7
[[ruleSets.match.any]]
kind = "HealthEvent"
expression = "event.isFatal"
[[ruleSets.match.all]]
kind = "Node"
expression = "'x' in node.metadata.labels"
[ruleSets.taint]
key = "k"
value = "v"
effect = "NoSchedule"
[ruleSets.cordon]
shouldCordon = true
`)
	sets := c.rules()
	if len(sets) != 1 || sets[0].Name != "mine" || sets[0].Taint == nil || !sets[0].Cordon.ShouldCordon || len(sets[0].Match.All) != 1 || len(sets[0].Match.Any) != 1 {
		t.Errorf("rule sets %+v", sets)
	}
	if c.LabelPrefix != "acme.example/" || c.DryRun || c.GPUNodeLabel != "a=b" || c.DefaultBudgets || c.Kube.QPS != 5 {
		t.Errorf("configuration %+v", c)
	}
}

// TestSessionsAtOnceAreBounded: without any setting a fifth of the GPU nodes, and
// a number in a zone, at least one; budgets of the file replace the built-in ones.
func TestSessionsAtOnceAreBounded(t *testing.T) {
	for gpus, want := range map[int]int{0: 1, 1: 1, 4: 1, 10: 2, 100: 20, 1000: 64} {
		now := time.Now()
		var nodes []budget.Node
		var waiting []budget.Candidate
		for i := range max(gpus, 3) {
			name := fmt.Sprintf("n-%d", i)
			nodes = append(nodes, budget.Node{Name: name, Counted: i < gpus})
			waiting = append(waiting, budget.Candidate{Name: name, Counted: i < gpus, Order: int64(i)})
		}
		d := budget.NewLedger(load(t, "", "--circuit-breaker-enabled=false").quota().Limits, nodes...).Admit(waiting, now)
		if len(d.Granted) != want {
			t.Errorf("%d GPU nodes: %d at once, want %d", gpus, len(d.Granted), want)
		}
	}
	own := load(t, "[[budgets]]\nname = \"zone\"\nlabel = \"z\"\nnodes = 1\n")
	if l := own.quota().Limits; len(l) != 2 || l[1].Label != "z" {
		t.Errorf("the file's budgets: %+v", l)
	}
}

// TestARuleSetInheritsNothing: what a set of the file leaves out does not come
// from a built-in set at the same place.
func TestARuleSetInheritsNothing(t *testing.T) {
	c := load(t, `
[[ruleSets]]
enabled = true
name = "mine"
[[ruleSets.match.any]]
kind = "HealthEvent"
expression = "event.isFatal"
[ruleSets.label]
key = "k"
value = "v"
`)
	rules := c.rules()
	if len(rules) != 1 || rules[0].Cordon.ShouldCordon || len(rules[0].Match.All) != 0 {
		t.Errorf("rule sets in force: %+v", rules)
	}
	if n := len(load(t, "").rules()); n < 2 {
		t.Errorf("%d built-in rule sets", n)
	}
}

// TestKeysThatNeedARestart: the budget's keys and the rule sets are taken over while
// the service runs, and nothing else is.
func TestKeysThatNeedARestart(t *testing.T) {
	before := load(t, "")
	for text, want := range map[string][]string{
		"": nil,
		"defaultBudgets = false\ngpuNodeLabel = \"a=b\"\n[circuitBreaker]\nnodes = 3\n[[budgets]]\nname = \"n\"\nnodes = 1\n":                                                     nil,
		"[[ruleSets]]\nenabled = true\nname = \"mine\"\n[[ruleSets.match.any]]\nkind = \"HealthEvent\"\nexpression = \"event.isFatal\"\n[ruleSets.cordon]\nshouldCordon = true\n": nil,
		"dryRun = false":                           {"dryRun"},
		"retention = \"1h\"\nworkers = 3":          {"retention", "workers"},
		"[leaderElection]\nleaseDuration = \"1m\"": {"leaderElection"},
	} {
		if got := config.NeedsRestart(before, load(t, text)); !slices.Equal(got, want) {
			t.Errorf("%q needs a restart: %q, want %q", text, got, want)
		}
	}
}
