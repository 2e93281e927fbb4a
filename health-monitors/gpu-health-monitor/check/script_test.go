package check

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmerror"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/gpumetadata"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// TestScripts tells the lives of faults as text: a look or a failure goes in, what
// is told comes out.
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
	inventory gpumetadata.Inventory
	epoch     time.Time
}

func newNode(t *testing.T) *node {
	t.Helper()
	table, err := dcgmerror.Builtin()
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
	n.inventory = gpumetadata.Inventory{ByPCI: map[string]gpumetadata.GPU{}}
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
			out.WriteString(n.look(t, d, lines))
		}
		return out.String()
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

// look takes one look, 15 s after the last one.
func (n *node) look(t *testing.T, d *datadriven.TestData, lines []string) string {
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
	for _, told := range out.Told {
		n.state.Name(told.Key, told.Event.ErrorCode[0])
	}
	return n.say(out)
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

func (n *node) say(out Outcome) string {
	var b strings.Builder
	for _, told := range out.Told {
		e := record.FromProto(told.Event)
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
		if chassis, told := e.Metadata[metadataChassis]; told {
			more = fmt.Sprintf(" chassis=%q", chassis)
		}
		if e.IsHealthy && e.Message != record.HealthyMessage {
			more += fmt.Sprintf(" %q", e.Message)
		}
		fmt.Fprintf(&b, "+%s %s: %s %v [%s] %s %s %s boot=%s%s\n", n.view.Now.Sub(n.epoch), told.Reason, e.CheckName, e.ErrorCode,
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

// read makes a reading of two GPUs of lines such as "0x10 FAIL 4 gpu:0", "status 1 4",
// "xid 0 79 5" (at second 5), "margin 0 3", "pending 0 true", "gone 1", "uuid 0 GPU-1"
// (- is none; a PCI address may follow), "switch 3"; "link:0/3" is link 3 of GPU 0, and
// "link:0" its link 7. Every value has a sample of now, but for "blank 0 311" (all without
// a field), "aged 0 70 311" (70 s old, or all), and "unwatched 1"; "recovery 0 1" is what
// the driver asks for.
func (n *node) read(t *testing.T, lines []string) reading.Reading {
	t.Helper()
	r := reading.Reading{Next: n.view.Now.UnixMicro()}
	for id := range uint(2) {
		no := false
		d := reading.Device{
			ID: id, Status: reading.OK, UUID: fmt.Sprintf("GPU-%d", id), PCI: fmt.Sprintf("0000:%d0:00.0", id+1), RemapPending: &no,
			Samples: map[reading.Field]int64{reading.FieldUUID: r.Next, reading.FieldPCI: r.Next},
		}
		for _, field := range reading.DecidingFields() {
			d.Samples[field] = r.Next
		}
		r.Devices = append(r.Devices, d)
	}
	for _, line := range lines {
		w := strings.Fields(line)
		switch w[0] {
		case "status":
			d := &r.Devices[integer(t, w[1])]
			d.Status = reading.Status(integer(t, w[2]))
			if !d.Status.Good() {
				d.UUID, d.PCI, d.RemapPending, d.Samples = "", "", nil, nil
			}
		case "unwatched":
			d := &r.Devices[integer(t, w[1])]
			d.Unwatched, d.Samples = true, nil
		case "recovery":
			action := integer(t, w[2])
			r.Devices[integer(t, w[1])].Recovery = &action
		case "blank", "aged":
			sampled(t, &r.Devices[integer(t, w[1])], w)
		case "gone":
			r.Devices = r.Devices[:integer(t, w[1])]
		case "switch":
			r.Switches = append(r.Switches, uint(integer(t, w[1])))
		case "uuid":
			d := &r.Devices[integer(t, w[1])]
			if d.UUID = strings.TrimPrefix(w[2], "-"); d.UUID != "" {
				d.PCI = fmt.Sprintf("0000:%d0:00.0", integer(t, strings.TrimPrefix(w[2], "GPU-"))+1)
			} else {
				delete(d.Samples, reading.FieldUUID)
			}
			if len(w) > 3 {
				d.PCI = strings.TrimPrefix(w[3], "-")
			}
		case "margin":
			m := integer(t, w[2])
			r.Devices[integer(t, w[1])].Margin = &m
		case "pending":
			yes := w[2] == "true"
			r.Devices[integer(t, w[1])].RemapPending = &yes
			if w[2] == "blank" {
				r.Devices[integer(t, w[1])].RemapPending = nil
				delete(r.Devices[integer(t, w[1])].Samples, reading.FieldPending)
			}
		case "xid":
			r.XIDs = append(r.XIDs, n.xid(t, w))
		default:
			r.Incidents = append(r.Incidents, incident(t, w))
		}
	}
	return r
}

// xid is one of a line such as "xid 0 79 5", "xid 0 79 5-3" or "xid 0 79 now+3" (µs), or of a MIG instance:
// "xid 4:2/1 94 now" of GPU 1, without "/1" of an unknown one.
func (n *node) xid(t *testing.T, w []string) reading.XID {
	t.Helper()
	x := reading.XID{Entity: reading.Entity{Kind: reading.GPU}, Number: integer(t, w[2])}
	base, offset := w[3], ""
	if i := strings.IndexAny(base, "+-"); i > 0 {
		base, offset = base[:i], base[i:]
	}
	x.At = n.view.Now.UnixMicro()
	if base != "now" {
		x.At = n.epoch.Add(time.Duration(integer(t, base)) * time.Second).UnixMicro()
	}
	x.At += integer(t, cmp.Or(offset, "0"))
	thing, gpu, known := strings.Cut(w[1], "/")
	kind, id, instance := strings.Cut(thing, ":")
	if instance {
		x.Entity.Kind, thing = reading.Kind(integer(t, kind)), id
	}
	if known {
		id := uint(integer(t, gpu))
		x.GPU = &id
	}
	x.Entity.ID = uint(integer(t, thing))
	return x
}

// sampled has values of a GPU be blank, or have samples that are some seconds old.
func sampled(t *testing.T, d *reading.Device, w []string) {
	t.Helper()
	age, fields := time.Duration(0), w[2:]
	if w[0] == "aged" {
		age, fields = time.Duration(integer(t, w[2]))*time.Second, w[3:]
	}
	for field := range d.Samples {
		if len(fields) > 0 && !slices.Contains(fields, strconv.Itoa(int(field))) {
			continue
		}
		if d.Samples[field] -= age.Microseconds(); w[0] != "blank" {
			continue
		}
		delete(d.Samples, field)
		switch field {
		case reading.FieldUUID:
			d.UUID = ""
		case reading.FieldPCI:
			d.PCI = ""
		case reading.FieldPending:
			d.RemapPending = nil
		case reading.FieldRecoveryAction:
			d.Recovery = nil
		case reading.FieldInforomValid, reading.FieldMargin, reading.FieldPower:
		}
	}
}

func incident(t *testing.T, w []string) reading.Incident {
	t.Helper()
	health := map[string]reading.Health{"PASS": reading.Pass, "WARN": reading.Warn, "FAIL": reading.Fail}[w[1]]
	kind, id, _ := strings.Cut(w[3], ":")
	id, index, _ := strings.Cut(id, "/")
	e := reading.Entity{ID: uint(integer(t, id))}
	switch kind {
	case "gpu":
		e.Kind = reading.GPU
	case "switch":
		e.Kind = reading.Switch
	case "mig":
		e.Kind = reading.GPUInstance
	case "port":
		e = link(reading.Entity{Kind: reading.Switch, ID: e.ID}, 7)
	case "link":
		e = link(reading.Entity{Kind: reading.GPU, ID: e.ID}, uint(integer(t, cmp.Or(index, "7"))))
	}
	return reading.Incident{System: uint32(integer(t, w[0])), Health: health, Code: uint(integer(t, w[2])), Entity: e, Text: strings.Join(w[4:], " ")}
}

// link is the entity of a link, as DCGM numbers it.
func link(parent reading.Entity, index uint) reading.Entity {
	return reading.Entity{Kind: reading.Link, ID: uint(parent.Kind)&0xff | index&0xffff<<8 | parent.ID&0xff<<24}
}

func integer(t *testing.T, s string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
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

// describe tells what the metadata file knows: "0 links active margin name", "chassis S".
func (n *node) describe(t *testing.T, line string) {
	t.Helper()
	w := strings.Fields(line)
	if w[0] == "chassis" {
		n.inventory.Chassis = w[1]
		return
	}
	g := gpumetadata.GPU{UUID: "GPU-" + w[0], PCI: "0000:" + strconv.FormatInt(integer(t, w[0])+1, 10) + "0:00.0", Index: w[0], Name: w[4]}
	for i, to := range []**int{&g.Links, &g.ActiveLinks, &g.SlowdownMargin} {
		if w[i+1] != "-" {
			v := int(integer(t, w[i+1]))
			*to = &v
		}
	}
	n.inventory.ByPCI[g.PCI] = g
}
