package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

const stages = `[[pipeline]]
name = "MetadataAugmentor"
enabled = true
config = "metadata.toml"
[[pipeline]]
name = "OverrideTransformer"
enabled = true
config = "overrides.toml"
`

// harmless is a rule for one GPU whose errors are known and harmless.
const harmless = `enabled = true
[[rules]]
name = "gpu-b-is-known"
when = 'event.entitiesImpacted.exists(x, x.entityType == "GPU_UUID" && x.entityValue == "GPU-b")'
[rules.override]
isFatal = false
recommendedAction = "NONE"
`

// TestPipelineChangesStoredAndShownEvents goes from the real ingest endpoint to the real
// store and the Node: labels, overrides, a new configuration and a bad one, and an event
// that is sent again under other rules.
func TestPipelineChangesStoredAndShownEvents(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		// As a whole, as a ConfigMap changes.
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("pipeline.toml", stages)
	put("metadata.toml", fmt.Sprintf("allowedLabels = [%q]\n", corev1.LabelArchStable))
	put("overrides.toml", harmless)
	s.args = append(s.args, "--pipeline-config="+filepath.Join(dir, "pipeline.toml"), "--metrics-address=127.0.0.1:0")
	connector := s.start()
	await(t, func() (bool, string) { // the labels are those of the Node that was seen
		_, err := os.Stat(filepath.Join(s.dir, "spool", "node.json"))
		return err == nil, "the node is not seen"
	})

	s.send(event("b", 1), event("a", 1), event("a", 2))
	s.awaitCondition(check, faulty(entry("a", 2))) // a repeat renews the fault that stands
	all := awaitStored(t, s.records(), 3)
	known, first, second := all[0], all[1], all[2]
	if known.Event.IsFatal || known.Event.RecommendedAction != record.ActionNone {
		t.Errorf("the known error is stored as %+v", known.Event)
	}
	if first.Event.Metadata[corev1.LabelArchStable] != "amd64" || first.Event.Metadata[pipeline.MetadataProviderID] != s.node.Spec.ProviderID {
		t.Errorf("the metadata is %v", first.Event.Metadata)
	}
	if first.Event.ProcessingStrategy != record.Process || second.Event.ProcessingStrategy != record.Process {
		t.Errorf("the fault is stored as %s, and in other words as %s", first.Event.ProcessingStrategy, second.Event.ProcessingStrategy)
	}

	// A bad configuration is reported in the readiness and changes nothing.
	put("overrides.toml", strings.Replace(harmless, "when =", "wenn =", 1))
	await(t, func() (bool, string) {
		ready := get(t, connector.url(t, "/readyz"))
		return strings.Contains(ready, "wenn") && strings.Contains(ready, "overrides.toml"), "ready: " + ready
	})
	s.send(event("b", 2))
	if all = awaitStored(t, s.records(), 4); all[3].Event.IsFatal {
		t.Error("a bad configuration switched the rules off")
	}
	// A new one counts from then on, also for what is sent again, which the spool
	// does not know any more.
	put("overrides.toml", "enabled = false\n")
	await(t, func() (bool, string) {
		metrics := get(t, connector.url(t, "/metrics"))
		return strings.Contains(metrics, `nvsentinel_connector_pipeline_reloads_total{result="taken"} 1`) &&
			strings.Contains(metrics, "nvsentinel_connector_wal_bytes 0\n"), metrics
	})
	s.send(event("b", 1), event("b", 3))
	all = awaitStored(t, s.records(), 5)
	if len(all) != 5 || !all[4].Event.IsFatal || all[0].Event.IsFatal {
		t.Errorf("%d records, the last fatal %v, the first %v", len(all), all[4].Event.IsFatal, all[0].Event.IsFatal)
	}
	await(t, func() (bool, string) {
		metrics := get(t, connector.url(t, "/metrics"))
		return strings.Contains(metrics, `nvsentinel_connector_records_appended_total{result="duplicate"} 1`+"\n") &&
			strings.Contains(metrics, `nvsentinel_connector_dead_letters_total{reason="refused"} 0`+"\n"), metrics
	})
}
