package transform

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// files writes a pipeline's files into a folder and returns the first's path.
func files(t *testing.T, dir string, texts map[string]string) string {
	t.Helper()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "pipeline.toml")
}

const (
	retired   = "[[pipeline]]\nname = \"Deduplicator\"\nenabled = true\nconfig = \"dedup.toml\"\n"
	nodesOnly = "[[pipeline]]\nname = \"MetadataAugmentor\"\nenabled = true\nconfig = \"metadata.toml\"\n"
	rulesOnly = "[[pipeline]]\nname = \"OverrideTransformer\"\nenabled = true\nconfig = \"overrides.toml\"\n"
)

// rule is an overrides file with one rule.
func rule(when, override string) string {
	return fmt.Sprintf("enabled = true\n[[rules]]\nname = \"r\"\nwhen = '%s'\n[rules.override]\n%s\n", when, override)
}

// unknown knows no node.
type unknown struct{}

func (unknown) Node(context.Context, string, pipeline.Metadata) *pipeline.Node { return nil }

func open(t *testing.T, file string, log *bytes.Buffer) *Runner {
	t.Helper()
	r, err := Open(Options{
		File: file, Nodes: unknown{}, Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(log, nil)),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLoadIsStrict(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"no file":         {nil, "no such file"},
		"an unknown key":  {map[string]string{"pipeline.toml": "[[pipelines]]\nname = \"x\"\n"}, `pipeline.toml: line 1: unknown key "pipelines"`},
		"an unknown name": {map[string]string{"pipeline.toml": "[[pipeline]]\nname = \"x\"\nenabled = true\n"}, `stage "x" is not`},
		"no config":       {map[string]string{"pipeline.toml": "[[pipeline]]\nname = \"MetadataAugmentor\"\nenabled = true\n"}, "stage MetadataAugmentor has no config"},
		"a missing config": {
			map[string]string{"pipeline.toml": nodesOnly}, "metadata.toml: no such file",
		},
		"an unknown key of a stage": {
			map[string]string{"pipeline.toml": nodesOnly, "metadata.toml": "cache = 3\n"}, `metadata.toml: line 1: unknown key "cache"`,
		},
		"a reference": {
			map[string]string{"pipeline.toml": rulesOnly, "overrides.toml": rule("event.message == \"${file:/etc/hostname}\"", "isFatal = false")}, "overrides.toml: key \"rules[0].when\": ${file:/etc/hostname}: a reference is allowed only in keys of type secret",
		},
		"a wrong type": {
			map[string]string{"pipeline.toml": nodesOnly, "metadata.toml": "cacheTTL = true\n"}, "metadata.toml",
		},
		"a rule that returns a number": {
			map[string]string{"pipeline.toml": rulesOnly, "overrides.toml": rule("1", "isFatal = false")}, "result type is int, must be bool",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Open(Options{File: files(t, t.TempDir(), tc.files), Clock: clock.RealClock{}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDisabledStageIsNotRead(t *testing.T) {
	text := strings.ReplaceAll(nodesOnly, "enabled = true", "enabled = false")
	r := open(t, files(t, t.TempDir(), map[string]string{"pipeline.toml": text}), &bytes.Buffer{})
	if _, detail := r.Ready(); detail != "stages []" {
		t.Errorf("%s", detail)
	}
}

func TestABadFileKeepsThePipelineBeforeIt(t *testing.T) {
	dir := t.TempDir()
	file := files(t, dir, map[string]string{"pipeline.toml": rulesOnly, "overrides.toml": rule("event.isFatal", "isFatal = false")})
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := open(t, file, &log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		steps := []struct {
			what      string
			overrides string
			ready     bool
			message   string // of a fatal event afterwards
			refused   float64
			logged    int
		}{
			{"the first", rule("event.isFatal", "isFatal = false"), true, "fatal false NONE", 0, 0},
			{"broken", rule("event.", "isFatal = false"), false, "fatal false NONE", 1, 1},
			{"broken as before", rule("event.", "isFatal = false"), false, "fatal false NONE", 1, 1},
			{"an unknown key", "enable = true\n", false, "fatal false NONE", 2, 2},
			{"the next", rule("event.isFatal", "recommendedAction = \"REPLACE_VM\""), true, "fatal true REPLACE_VM", 2, 2},
		}
		for _, s := range steps {
			files(t, dir, map[string]string{"overrides.toml": s.overrides})
			synctest.Wait()
			time.Sleep(2 * daemon.FilesEvery) // the bubble's time
			synctest.Wait()
			if ok, detail := r.Ready(); ok != s.ready {
				t.Errorf("%s: ready %v, %s", s.what, ok, detail)
			}
			e := r.Change(ctx, record.Record{Event: record.Event{IsFatal: true, RecommendedAction: record.ActionNone}}).Event
			if got := fmt.Sprintf("fatal %v %s", e.IsFatal, e.RecommendedAction); got != s.message {
				t.Errorf("%s: %s, want %s", s.what, got, s.message)
			}
			if n := testutil.ToFloat64(r.metrics.reloads.WithLabelValues(refused)); n != s.refused {
				t.Errorf("%s: %v refused", s.what, n)
			}
			if n := strings.Count(log.String(), "rejected, the previous one stays active"); n != s.logged {
				t.Errorf("%s: said %d times", s.what, n)
			}
			if stale := testutil.ToFloat64(r.metrics.stale) == 1; stale == s.ready {
				t.Errorf("%s: stale %v", s.what, stale)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// fault is the nth copy of one fault.
func fault(n int) record.Record {
	return record.Record{
		ID: fmt.Sprint(n), CreatedAt: time.Date(2026, 3, 1, 12, 0, n, 0, time.UTC),
		Event: record.Event{Agent: "a", CheckName: "XID", NodeName: "n", IsFatal: true, ProcessingStrategy: record.Process},
	}
}

// carry takes records to a sink that stores them, and returns the batches as
// "id:strategy".
func carry(t *testing.T, r *Runner, records []record.Record) []string {
	t.Helper()
	var batches []string
	for len(records) > 0 {
		out, settled := r.Transform(t.Context(), records)
		if len(out) == 0 || len(out) > len(records) {
			t.Fatalf("%d of %d records", len(out), len(records))
		}
		records = records[len(out):]
		var batch []string
		for _, rec := range out {
			batch = append(batch, rec.ID+":"+string(rec.Event.ProcessingStrategy))
		}
		settled(make([]store.AppendResult, len(out)))
		batches = append(batches, strings.Join(batch, " "))
	}
	return batches
}

// TestAStageOfEarlierVersionsIsNoError: a connector that refused it would take no events.
// The stage changes nothing, its file need not be there, and the log reports it.
func TestAStageOfEarlierVersionsIsNoError(t *testing.T) {
	file := files(t, t.TempDir(), map[string]string{
		"pipeline.toml": retired + rulesOnly, "overrides.toml": rule(`event.message == "change me"`, "isFatal = false"),
	})
	var log bytes.Buffer
	r := open(t, file, &log)
	if n := strings.Count(log.String(), "stage Deduplicator no longer has an effect"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	want := []string{"1:PROCESS 2:PROCESS"}
	if diff := cmp.Diff(want, carry(t, r, []record.Record{fault(1), fault(2)})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChangedEventKeepsAcceptedContent(t *testing.T) {
	file := files(t, t.TempDir(), map[string]string{
		"pipeline.toml":  rulesOnly,
		"overrides.toml": rule(`event.message == "change me"`, "isFatal = false"),
	})
	r := open(t, file, &bytes.Buffer{})
	plain, changed := fault(1), fault(2)
	changed.Event.Message, changed.Event.CheckName = "change me", "Other"
	for _, given := range []record.Record{plain, changed} {
		out, settled := r.Transform(t.Context(), []record.Record{given})
		settled([]store.AppendResult{store.Appended})
		got := out[0]
		if record.Content(got) != record.Content(given) {
			t.Errorf("record %s has another content than it was accepted with", given.ID)
		}
		if (got.Accepted == "") != (given.ID == plain.ID) {
			t.Errorf("record %s: accepted %q", given.ID, got.Accepted)
		}
	}
}

func TestFailingRuleIsLoggedOnceAndCountedAlways(t *testing.T) {
	file := files(t, t.TempDir(), map[string]string{
		"pipeline.toml": rulesOnly, "overrides.toml": rule(`event.metadata["missing"] == "x"`, "isFatal = false"),
	})
	var log bytes.Buffer
	r := open(t, file, &log)
	carry(t, r, []record.Record{fault(1), fault(2), fault(3)})
	if n := strings.Count(log.String(), "rule evaluation failed"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	if n := testutil.ToFloat64(r.metrics.failed.WithLabelValues("r")); n != 3 {
		t.Errorf("counted %v times", n)
	}
}

func TestNodesOfOthersAreReadOnceInAWhile(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"zone": "b"}}, Spec: corev1.NodeSpec{ProviderID: "p"},
	})
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "own", Labels: map[string]string{"zone": "a"}}}
	var seen *corev1.Node
	c := &Cluster{
		Own: "own", Object: func() *corev1.Node { return seen }, Client: &nodeclient.Client{Nodes: client.CoreV1().Nodes()}, Clock: now, Log: slog.New(slog.DiscardHandler),
	}
	limits := pipeline.Default().Metadata
	zone := func(name string) string {
		if n := c.Node(t.Context(), name, limits); n != nil {
			return n.Labels["zone"]
		}
		return "unknown"
	}
	if got := zone("own"); got != "unknown" {
		t.Errorf("a node that was not seen: %s", got)
	}
	seen = own
	for range 3 {
		if zone("own") != "a" || zone("other") != "b" || zone("absent") != "unknown" {
			t.Errorf("zones %s, %s, %s", zone("own"), zone("other"), zone("absent"))
		}
	}
	reads := func() (n int) {
		for _, a := range client.Actions() {
			if strings.Contains(fmt.Sprint(a), "other") {
				n++
			}
		}
		return n
	}
	if n := reads(); n != 1 {
		t.Errorf("read %d times", n)
	}
	now.SetTime(now.Now().Add(limits.CacheTTL + 1))
	zone("other")
	if n := reads(); n != 2 {
		t.Errorf("read %d times after the cache's time", n)
	}
}
