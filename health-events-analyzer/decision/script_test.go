package decision_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// start is the zero of a script's times.
var start = time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)

// node is one node's analysis without a store: what is derived is an event of
// the node at once.
type node struct {
	t       *testing.T
	rules   []rule.Rule
	window  *decision.Window
	appends int64
	now     time.Time
	names   map[string]string // of record ids
	ids     map[string]bool   // of derived events
	records map[string]record.Record
}

func newNode(t *testing.T, rules []rule.Rule) *node {
	return &node{
		t: t, rules: rules, window: window(rules), now: start, names: map[string]string{}, ids: map[string]bool{},
		records: map[string]record.Record{},
	}
}

// window is the cluster's if the first rule is.
func window(rules []rule.Rule) *decision.Window {
	if rules[0].Scope == rule.OnCluster {
		return decision.NewClusterWindow(rules)
	}
	return decision.NewWindow(rules)
}

// parse reads "<name> <offset> <codes or -> [type=value | word]...".
func (n *node) parse(line string) record.Record {
	fields := strings.Fields(line)
	offset, err := time.ParseDuration(fields[1])
	if err != nil {
		n.t.Fatalf("%q: %v", line, err)
	}
	n.appends++
	r := record.Record{ID: fields[0], CreatedAt: start.Add(offset), Append: n.appends, Event: record.Event{
		ID: fields[0], Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: "n1",
		IsFatal: true, GeneratedTimestamp: start.Add(offset), ProcessingStrategy: record.Process, Metadata: map[string]string{},
	}}
	if fields[2] != "-" {
		r.Event.ErrorCode = strings.Split(fields[2], ",")
	}
	for _, word := range fields[3:] {
		n.describe(&r, word)
	}
	return r
}

func (n *node) describe(r *record.Record, word string) {
	e := &r.Event
	k, v, _ := strings.Cut(word, "=")
	switch k {
	case "healthy":
		e.IsHealthy, e.IsFatal = true, false
	case "nonfatal":
		e.IsFatal = false
	case "persist":
		e.ProcessingStrategy = record.PersistOnly
	case "agent":
		e.Agent = v
	case "check":
		e.CheckName = v
	case "class":
		e.ComponentClass = v
	case "session":
		r.Status.Session = v
	case "node":
		e.NodeName = v
	case "seq":
		if _, err := fmt.Sscan(v, &r.Seq); err != nil {
			n.t.Fatal(err)
		}
		r.SeqEpoch = "epoch"
		e.Metadata[record.MetadataSeqRuns] = "run"
	case "boot":
		e.Metadata[record.MetadataBootID] = v
	case "machine":
		r.Node.ProviderID = v
	case "accepted":
		d, err := time.ParseDuration(v)
		if err != nil {
			n.t.Fatal(err)
		}
		r.CreatedAt = start.Add(d)
	case "gpu":
		e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: "GPU_UUID", EntityValue: v})
	case "bits": // "REG0:1": all registers, one bit set
		for i := range 7 {
			value := strings.Repeat("0", 32)
			var reg, bit int
			for one := range strings.SplitSeq(v, "+") {
				if _, err := fmt.Sscanf(one, "REG%d:%d", &reg, &bit); err != nil {
					n.t.Fatal(err)
				}
				if reg == i {
					value = value[:31-bit] + "1" + value[32-bit:]
				}
			}
			e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: fmt.Sprint("REG", i), EntityValue: value})
		}
	default:
		e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: k, EntityValue: v})
	}
}

// take gives the analysis one record and returns what follows.
func (n *node) take(r record.Record) []string {
	n.records[r.ID] = r
	if n.names[r.ID] == "" {
		n.names[r.ID] = r.ID
	}
	from, changed := n.window.Add(decision.NewFact(r))
	var out []string
	if changed {
		for _, f := range n.window.Evaluate(from, later(n.now, r.CreatedAt)) {
			if f.Reason == decision.Matched {
				out = append(out, n.publish(f.Event(record.Process)))
			}
		}
	}
	for _, id := range n.window.Unknown() {
		n.window.Expire(id)
	}
	for _, c := range n.window.Clearings() {
		out = append(out, n.publish(c.Event()))
	}
	n.window.Prune(later(n.now, r.CreatedAt))
	return out
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (n *node) publish(e record.Event) string {
	n.appends++
	if n.ids[e.ID] {
		n.t.Errorf("the id of %s %s is a duplicate", e.CheckName, e.Metadata["subject"])
	}
	n.ids[e.ID] = true
	r := record.Record{ID: e.ID, CreatedAt: e.GeneratedTimestamp, Append: n.appends, Event: e}
	n.records[r.ID] = r
	n.window.Add(decision.NewFact(r))
	if e.IsHealthy {
		return fmt.Sprintf("%s of %s is over", e.CheckName, e.Metadata["subject"])
	}
	var sources []string
	for id := range strings.SplitSeq(e.Metadata["sources"], ",") {
		sources = append(sources, n.names[id])
	}
	text := fmt.Sprintf("%s (%s) %s from %s", e.CheckName, e.RecommendedAction, e.Metadata["subject"], strings.Join(sources, ","))
	if e.ProcessingStrategy != record.Process {
		text += " " + string(e.ProcessingStrategy)
	}
	if e.Metadata["scope"] != "" {
		text += " on " + e.NodeName
	}
	if boot := e.BootID(); boot != "" {
		text += " boot " + boot
	}
	if e.IsFatal != (e.RecommendedAction != record.ActionNone) {
		text += " with a wrong isFatal"
	}
	return text
}

// change writes into the status of a record as the services do:
// "<name> <offset> cleared|covered|superseded|remediated|failed [session]".
func (n *node) change(line string) record.Record {
	fields := strings.Fields(line)
	offset, err := time.ParseDuration(fields[1])
	if err != nil {
		n.t.Fatal(err)
	}
	at := start.Add(offset)
	r, known := n.records[fields[0]]
	if !known {
		for id, x := range n.records {
			if x.Event.CheckName == fields[0] && !x.Event.IsHealthy {
				r = n.records[id]
			}
		}
	}
	r.Revision++
	switch s := &r.Status; fields[2] {
	case "cleared":
		s.QuarantineVerdict = &record.Verdict{Reason: record.Matched, At: at}
		s.Faults = []record.Fault{{Key: "k", ClearedTimestamp: &at, ClearedBy: record.ClearedManual}}
	case "covered":
		s.QuarantineVerdict = &record.Verdict{Reason: record.CoveredByReboot, At: at}
	case "superseded":
		s.QuarantineVerdict = &record.Verdict{Reason: record.Superseded, At: at}
	case "remediated", "failed":
		s.Session, s.FaultRemediated, s.LastRemediationTimestamp = fields[3], new(fields[2] == "remediated"), &at
	default:
		n.t.Fatalf("%q: unknown change", line)
	}
	return r
}

// pick chooses built-in rules by name; options make the profile of the
// predecessor's own tests.
func pick(t *testing.T, names []string, d *datadriven.TestData) []rule.Rule {
	t.Helper()
	var out []rule.Rule
	for _, r := range rule.Default() {
		if len(names) > 0 && !slices.Contains(names, r.Name) {
			continue
		}
		if d.HasArg("short") {
			r.Window, r.Count = 2*time.Minute, min(r.Count, 2)
			if r.Bursts != nil {
				b := *r.Bursts
				b.Gap, b.StickyWithin = 15*time.Second, 30*time.Second
				r.Bursts = &b
			}
		}
		out = append(out, r)
	}
	if len(out) < len(names) {
		t.Fatalf("%s: not all of %v are built-in rules", d.Pos, names)
	}
	return out
}

// TestScripts runs testdata: "case <rules>" begins a node, "rules" one with
// rules of its own, "more" goes on; each line of input is an event, or with a
// leading "status" a change of one, or "clock <offset>". Every built-in rule has
// a case of its own that it fires in, and one that it does not.
func TestScripts(t *testing.T) {
	fires, rests := map[string]bool{}, map[string]bool{}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var n *node
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			input := d.Input
			switch d.Cmd {
			case "case":
				var names []string
				for _, a := range d.CmdArgs {
					if a.Key != "short" && a.Key != "all" {
						names = append(names, a.Key)
					}
				}
				n = newNode(t, pick(t, names, d))
			case "rules":
				rules, err := rule.Parse("rules.toml", []byte(d.Input))
				if err != nil {
					return err.Error() + "\n"
				}
				n, input = newNode(t, rules), ""
			case "more":
			default:
				t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			}
			n.t = t
			out := n.run(input)
			if d.Cmd == "case" && len(d.CmdArgs) == 1 {
				name := d.CmdArgs[0].Key
				fires[name] = fires[name] || strings.Contains(out, ": "+name+" (")
				rests[name] = rests[name] || out == "-\n"
			}
			return out
		})
	})
	for _, r := range rule.Default() {
		if !fires[r.Name] || !rests[r.Name] {
			t.Errorf("%s: a case that fires: %v, one that does not: %v", r.Name, fires[r.Name], rests[r.Name])
		}
	}
}

func (n *node) run(input string) string {
	var out strings.Builder
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		var news []string
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "":
			continue
		case "clock":
			offset, err := time.ParseDuration(rest)
			if err != nil {
				n.t.Fatal(err)
			}
			n.now = start.Add(offset)
			continue
		case "status":
			news = n.take(n.change(rest))
			word, _, _ = strings.Cut(rest, " ")
			for _, x := range news {
				fmt.Fprintf(&out, "%s: %s\n", word, x)
			}
		default:
			news = n.take(n.parse(line))
			for _, x := range news {
				fmt.Fprintf(&out, "%s: %s\n", word, x)
			}
		}
	}
	if out.Len() == 0 {
		return "-\n"
	}
	return out.String()
}
