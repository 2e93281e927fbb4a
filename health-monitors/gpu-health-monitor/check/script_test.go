package check

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// TestScripts plays the lives of faults as text: a poll or a failure goes in, what is
// reported comes out.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		n := newNode(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return n.run(t, d) })
	})
}

// node is a monitor without DCGM.
type node struct {
	state     State
	memory    Memory
	policy    Policy
	view      View
	inventory nodefile.Inventory
	epoch     time.Time
}

func newNode(t *testing.T) *node {
	t.Helper()
	table, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	state, err := DecodeState(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	n := &node{state: state, memory: NewMemory(), epoch: at, view: View{Now: at, Boot: "b1", Connected: at}}
	n.policy = Policy{Node: "n1", Table: table, Catalogue: xid.Builtin, Settle: time.Minute, Remember: 2 * time.Hour, Suppressed: map[string]bool{}}
	n.policy.Rules, n.policy.Otherwise = DefaultRules(record.Process)
	n.inventory = nodefile.Inventory{ByPCI: map[string]nodefile.GPU{}}
	return n
}

func (n *node) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	lines := strings.FieldsFunc(d.Input, func(r rune) bool { return r == '\n' })
	switch d.Cmd {
	case "policy":
		for _, line := range lines {
			n.decree(t, line)
		}
		return ""
	case "metadata":
		for _, line := range lines {
			n.describe(t, line)
		}
		return ""
	case "boot":
		n.view.Boot = strings.TrimSpace(d.Input)
		if n.view.Boot == "unknown" {
			n.view.Boot = ""
		}
		return ""
	case "reconnect":
		n.view.Connected = n.view.Now
		return ""
	case "clear": // by a person, who clears the events of a fault, by its code
		return n.clear(strings.TrimSpace(d.Input))
	case "restart": // of the process: only what was encoded is left
		data, err := n.state.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if n.state, err = DecodeState(data); err != nil {
			t.Fatal(err)
		}
		n.memory = NewMemory()
		return ""
	case "look", "fail":
		times := 1
		if d.HasArg("times") {
			d.ScanArgs(t, "times", &times)
		}
		var out strings.Builder
		for range times {
			out.WriteString(n.poll(t, d, lines))
		}
		return out.String()
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

// poll takes one look, 15 s after the last one.
func (n *node) poll(t *testing.T, d *datadriven.TestData, lines []string) string {
	t.Helper()
	n.view.Now = n.view.Now.Add(15 * time.Second)
	v := n.view
	v.Inventory = n.inventory
	if d.Cmd == "fail" {
		words := strings.Fields(d.Input)
		v.Failure = &reading.Failure{Trouble: reading.Trouble(words[0]), Operation: words[1], Text: "test"}
	} else {
		r := n.read(t, lines)
		v.Reading = &r
	}
	out := Decide(n.state, n.memory, v, n.policy)
	n.written(t, out)
	n.state, n.memory = out.State, out.Memory
	for _, reported := range out.Reports {
		n.state.Name(reported.Key, reported.Event.ErrorCode[0])
	}
	return n.outcomeText(out)
}

// clear clears the faults of a code; the ids of their events are their codes.
func (n *node) clear(code string) string {
	n.state = n.state.Clone()
	gone := n.state.Clear(func(ids []string) bool { return slices.Contains(ids, code) })
	slices.Sort(gone)
	return strings.Join(append(gone, ""), "\n")
}

// written holds for every look: what it remembers is written. Only XIDs that are
// forgotten need not be, since they are forgotten again.
func (n *node) written(t *testing.T, out Outcome) {
	t.Helper()
	before := n.state.Clone()
	before.forget(n.view.Now.Add(-n.policy.Remember))
	if !out.Changed && !reflect.DeepEqual(before, out.State) {
		t.Errorf("+%s: is not written, and has changed: %+v, was %+v", n.view.Now.Sub(n.epoch), out.State, before)
	}
}

func (n *node) outcomeText(out Outcome) string {
	var b strings.Builder
	for _, reported := range out.Reports {
		e := record.FromProto(reported.Event)
		var names []string
		for _, x := range e.EntitiesImpacted {
			names = append(names, x.EntityType+"="+x.EntityValue)
		}
		kind := "warns"
		switch {
		case e.IsHealthy:
			kind = "healthy"
		case e.IsFatal:
			kind = "fatal"
		}
		more := ""
		if chassis, reported := e.Metadata[metadataChassis]; reported {
			more = fmt.Sprintf(" chassis=%q", chassis)
		}
		if e.IsHealthy && e.Message != record.HealthyMessage {
			more += fmt.Sprintf(" %q", e.Message)
		}
		fmt.Fprintf(&b, "+%s %s: %s %v [%s] %s %s %s boot=%s%s\n", n.view.Now.Sub(n.epoch), reported.Reason, e.CheckName, e.ErrorCode,
			strings.Join(names, " "), kind, e.RecommendedAction, e.ProcessingStrategy, e.Metadata[record.MetadataBootID], more)
	}
	for code, count := range out.Suppressed {
		fmt.Fprintf(&b, "suppressed %s %d\n", code, count)
	}
	if out.Unknown > 0 {
		fmt.Fprintf(&b, "unknown systems %d\n", out.Unknown)
	}
	if out.Latched > 0 {
		fmt.Fprintf(&b, "latched %d\n", out.Latched)
	}
	if out.Unreadable {
		b.WriteString("unreadable\n")
	}
	return b.String()
}

// decree changes the policy: "escalate 3", "embedded", "suppress CODE", "unbridged",
// "persist CHECK", "process CHECK", "clear CHECK K N", "csv NAME,ACTION".
func (n *node) decree(t *testing.T, line string) {
	t.Helper()
	w := strings.Fields(line)
	switch w[0] {
	case "escalate":
		n.policy.EscalateAfter = int(integer(t, w[1]))
	case "embedded":
		n.policy.Embedded = true
	case "suppress":
		n.policy.Suppressed[w[1]] = true
	case "unbridged":
		n.policy.UnbridgedPCIe = true
	case "persist", "process":
		rule := n.policy.rule(w[1])
		rule.Strategy = map[string]record.Strategy{"persist": record.PersistOnly, "process": record.Process}[w[0]]
		n.policy.Rules[w[1]] = rule
	case "clear":
		rule := n.policy.rule(w[1])
		rule.Clear = Share{int(integer(t, w[2])), int(integer(t, w[3]))}
		n.policy.Rules[w[1]] = rule
	case "csv":
		var err error
		if n.policy.Table, err = n.policy.Table.With(strings.NewReader(w[1])); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("unknown policy %q", line)
	}
}

// describe sets what the metadata file knows: "0 links active margin name", "chassis S".
func (n *node) describe(t *testing.T, line string) {
	t.Helper()
	w := strings.Fields(line)
	if w[0] == "chassis" {
		n.inventory.Chassis = w[1]
		return
	}
	g := nodefile.GPU{UUID: "GPU-" + w[0], PCI: "0000:" + strconv.FormatInt(integer(t, w[0])+1, 10) + "0:00.0", Index: w[0], Name: w[4]}
	for i, to := range []**int{&g.Links, &g.ActiveLinks, &g.SlowdownMargin} {
		if w[i+1] != "-" {
			v := int(integer(t, w[i+1]))
			*to = &v
		}
	}
	n.inventory.ByPCI[g.PCI] = g
}
