// Package repeats tests what two services guarantee together: the analyzer finds in what the
// connectors count what it would have found in every single event.
package repeats

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// kind is an event of which there are many.
type kind struct {
	agent, check, code string
	fatal              bool
	entities           string
	bit                string // of the registers of an XID 74
}

const monitor, xids = "syslog-health-monitor", "SysLogsXIDError"

var kinds = []kind{
	{monitor, xids, "13", true, "GPU_UUID=G1 GPC=0 TPC=1", ""},
	{monitor, xids, "13", true, "GPU_UUID=G1 GPC=0 TPC=2", ""},
	{monitor, xids, "31", true, "GPU_UUID=G1", ""},
	{monitor, xids, "31", true, "GPU_UUID=G2", ""},
	{monitor, xids, "48", true, "GPU_UUID=G1", ""},
	{monitor, xids, "79", true, "GPU_UUID=G2", ""},
	{monitor, xids, "45", false, "GPU_UUID=G1", ""},
	{monitor, xids, "74", true, "GPU_UUID=G1 NVLINK=3", "REG0:4"},
	{monitor, xids, "74", true, "GPU_UUID=G2 NVLINK=3", "REG0:8"},
	{monitor, xids, "74", true, "GPU_UUID=G2 NVLINK=4", "REG2:16"},
	{monitor, xids, "74", true, "GPU_UUID=G2 NVLINK=5", "REG4:20"},
	{monitor, "SysLogsNICDriverError", "netdev_watchdog", false, "NIC=mlx5_0", ""},
	{"nic-health-monitor", "InfiniBandDegradationCheck", "degraded", false, "NIC=mlx5_0 NICPort=1", ""},
}

func (k kind) record(n int, at time.Time) record.Record {
	id := fmt.Sprintf("%04d", n)
	e := record.Event{
		ID: id, Agent: k.agent, ComponentClass: "GPU", CheckName: k.check, NodeName: "n1", IsFatal: k.fatal, ErrorCode: []string{k.code},
		GeneratedTimestamp: at, ProcessingStrategy: record.Process,
		Metadata: map[string]string{record.MetadataSeq: strconv.Itoa(n + 1), record.MetadataSeqEpoch: "e", record.MetadataSeqRuns: "run"},
	}
	for text := range strings.FieldsSeq(k.entities) {
		name, value, _ := strings.Cut(text, "=")
		e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: name, EntityValue: value})
	}
	register, bit, _ := strings.Cut(k.bit, ":")
	for i := range 7 {
		if name := fmt.Sprint("REG", i); k.bit != "" {
			value := 0
			if n, err := strconv.Atoi(bit); err == nil && name == register {
				value = 1 << n
			}
			e.Metadata[name] = fmt.Sprintf("0x%x", value)
		}
	}
	return record.Record{ID: id, CreatedAt: at, Event: e}
}

// analysis is the analyzer of one node.
type analysis struct {
	window  *decision.Window
	appends int64
	found   map[string]bool
}

func newAnalysis() *analysis {
	return &analysis{window: decision.NewWindow(rule.OnNode.Of(rule.Default())), found: map[string]bool{}}
}

// take gives it stored records, and what it derives.
func (a *analysis) take(now time.Time, records ...record.Record) {
	for _, r := range records {
		a.appends++
		r.Append = a.appends
		from, changed := a.window.Add(decision.NewFact(r))
		if !changed {
			continue
		}
		for _, f := range a.window.Evaluate(from, now) {
			if f.Reason != decision.Matched {
				continue
			}
			a.found[f.Rule.Name+" "+f.Subject] = true
			e := f.Event(record.Process)
			a.appends++
			a.window.Add(decision.NewFact(record.Record{ID: e.ID, CreatedAt: e.GeneratedTimestamp, Append: a.appends, Event: e}))
		}
	}
}

// story runs a node's events through two analyses: one takes each event at once, the other takes
// them as the connector counts them. rows is the number of counted records.
func story(events []record.Record) (each, counted *analysis, rows int) {
	each, counted = newAnalysis(), newAnalysis()
	c := pipeline.NewRepeats(pipeline.MaxWindow)
	store := func(now time.Time, records []record.Record) {
		rows += len(records)
		counted.take(now, records...)
	}
	for i, r := range events {
		now := r.CreatedAt
		if due, ok := c.Due(); ok && !now.Before(due) {
			store(due, c.Flush(due))
		}
		store(now, c.Take(now, uint64(i)+1, r, r.Event))
		each.take(now, r)
	}
	end := events[len(events)-1].CreatedAt.Add(pipeline.MaxWindow)
	store(end, c.Flush(end))
	return each, counted, rows
}

// TestTheShippedRulesSeeEveryRepeat: N identical events in so many minutes.
func TestTheShippedRulesSeeEveryRepeat(t *testing.T) {
	fired := map[string]bool{}
	for _, k := range kinds {
		for _, n := range []int{1, 2, 3, 5, 30} {
			for _, apart := range []time.Duration{0, 300 * time.Millisecond, 5 * time.Second, 16 * time.Second, 50 * time.Second, 4 * time.Minute, time.Hour} {
				var events []record.Record
				for i := range n {
					events = append(events, k.record(i, start.Add(time.Duration(i)*apart)))
				}
				each, counted, rows := story(events)
				if diff := cmp.Diff(each.found, counted.found); diff != "" {
					t.Errorf("%d of %v, %v apart (-each +counted):\n%s", n, k, apart, diff)
				}
				if most := 2 + int(time.Duration(n)*apart/pipeline.MaxWindow); n > most && rows > most {
					t.Errorf("%d of %v, %v apart, are %d records", n, k, apart, rows)
				}
				maps.Copy(fired, each.found)
			}
		}
	}
	if len(fired) < 12 {
		t.Errorf("only %v were found: this test means little", slices.Sorted(maps.Keys(fired)))
	}
}

// TestRepeatsAmongOtherFaults: the same on random days of a node.
func TestRepeatsAmongOtherFaults(t *testing.T) {
	gaps := []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, 20 * time.Second, 4 * time.Minute, 2 * time.Hour}
	saved := 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		at, k, events := start, kinds[0], []record.Record(nil)
		for i := range 60 {
			if random.IntN(3) == 0 {
				k = kinds[random.IntN(len(kinds))]
			}
			at = at.Add(time.Duration(random.Int64N(int64(gaps[random.IntN(len(gaps))]))) + time.Millisecond)
			events = append(events, k.record(i, at.Truncate(time.Millisecond)))
		}
		each, counted, rows := story(events)
		saved += len(events) - rows
		if diff := cmp.Diff(each.found, counted.found); diff != "" {
			t.Errorf("seed %d (-each +counted):\n%s", seed, diff)
		}
	}
	if saved < 300 {
		t.Errorf("only %d events were counted: this test means little", saved)
	}
}
