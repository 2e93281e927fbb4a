package stories

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	quarantine "github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	analysis "github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// kernel is a node's kernel, whose lines become stored records as
// syslog-health-monitor, the connector and the stores make them.
type kernel struct {
	t        *testing.T
	boot     time.Time
	at       time.Duration // since the boot
	strategy record.Strategy
	memory   recovery.Memory
	stored   int64
}

var (
	thisGPU  = location.Device{PCI: "0000:81:00", UUID: "GPU-11111111-1111-1111-1111-111111111111", Index: "1", Listed: true}
	otherGPU = location.Device{PCI: "0000:82:00", UUID: "GPU-22222222-2222-2222-2222-222222222222", Index: "2", Listed: true}
	machine  = record.NodeIdentity{ProviderID: "m1", UID: "u1", BootID: "b1"}
)

func newKernel(t *testing.T) *kernel {
	return &kernel{t: t, boot: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), strategy: record.Process}
}

func (k *kernel) sighting() location.Sighting {
	return location.Sighting{Node: nodeName, Boot: machine.BootID, Strategy: k.strategy, At: k.boot.Add(k.at)}
}

// xid stores the event of a kernel log line about thisGPU or otherGPU.
func (k *kernel) xid(line string) record.Record {
	k.t.Helper()
	f, ok := xid.Parse(line)
	if !ok {
		k.t.Fatalf("%q is no XID", line)
	}
	d := thisGPU
	if f.PCI != d.PCI {
		d = otherGPU
	}
	j := xid.Builtin.Evaluate(f, "")
	k.memory.Add(recovery.Report{
		Device: f.PCI, Code: f.ErrorCode(), Strategy: k.strategy, Fatal: j.Fatal, RebootCures: j.RebootCures, ResetCures: j.ResetCures(),
	})
	return k.store(xid.Builtin.Event(f, d, k.sighting(), line))
}

// reset stores the recovery that a reset of a GPU brings.
func (k *kernel) reset(d location.Device) record.Record {
	k.t.Helper()
	codes := k.memory.AfterReset(d.PCI, append(xid.Builtin.ResetCodes(), recovery.CodeResetFailure))
	return k.store(recovery.ResetSucceeded(xid.Check, d, k.sighting(), codes))
}

// store sends an event through the wire, the connector and a store's document.
func (k *kernel) store(e *protos.HealthEvent) record.Record {
	k.t.Helper()
	wire, err := proto.Marshal(e)
	if err != nil {
		k.t.Fatal(err)
	}
	var received protos.HealthEvent
	if err := proto.Unmarshal(wire, &received); err != nil {
		k.t.Fatal(err)
	}
	accepted, cuts, refusal := admission.Normalise(&received, nodeName)
	if refusal != nil || len(cuts) > 0 {
		k.t.Fatalf("the connector refuses or cuts: %v, %v", refusal, cuts)
	}
	k.stored++
	r := record.Record{
		ID: fmt.Sprint("r", k.stored), CreatedAt: k.boot.Add(k.at), Append: k.stored, Node: machine,
		Seq: uint64(k.stored), SeqEpoch: "e1", Event: accepted,
	}
	document, err := record.AppendJSON(nil, r)
	if err != nil {
		k.t.Fatal(err)
	}
	var read record.Record
	if err := json.Unmarshal(document, &read); err != nil {
		k.t.Fatal(err)
	}
	return read
}

// analyse gives the records to the built-in rules, one by one, and lists which
// derive a fault.
func analyse(t *testing.T, records []record.Record) []string {
	t.Helper()
	w := analysis.NewWindow(rule.Default())
	var out []string
	for _, r := range records {
		from, changed := w.Add(analysis.NewFact(r))
		if !changed {
			continue
		}
		for _, f := range w.Evaluate(from, r.CreatedAt) {
			if f.Reason != analysis.Matched {
				continue
			}
			e := f.Event(record.Process)
			out = append(out, f.Trigger.Record.ID+" "+e.CheckName)
			w.Add(analysis.NewFact(record.Record{ID: e.ID, CreatedAt: r.CreatedAt, Append: r.Append, Event: e}))
		}
	}
	return out
}

const (
	xid13 = "NVRM: Xid (PCI:0000:81:00): 13, pid=1234, name=python, Graphics SM Warp Exception on "
	xid31 = "NVRM: Xid (PCI:0000:81:00): 31, pid=1234, name=python, MMU Fault"
	xid74 = "NVRM: Xid (PCI:0000:81:00): 74, pid=1234, name=python, NVLink: fatal error detected on "
)

// TestLinesReachTheAnalyzersRules: from the kernel's words to the derived fault,
// a minute between the lines.
func TestLinesReachTheAnalyzersRules(t *testing.T) {
	const (
		solo  = "XIDErrorSoloNoBurst"
		reset = "(the GPU is reset)"
	)
	for name, tt := range map[string]struct {
		lines []string
		want  []string
	}{
		"XID 13 on one TPC": {
			[]string{xid13 + "(GPC 3, TPC 1, SM 0): Out Of Range Address", xid13 + "(GPC 3, TPC 1, SM 1): Illegal Instruction"},
			[]string{"r1 " + solo, "r2 RepeatedXID13OnSameGPCAndTPC"},
		},
		"XID 13 on two TPCs": {
			[]string{xid13 + "(GPC 3, TPC 1, SM 0): x", xid13 + "(GPC 3, TPC 2, SM 0): x"},
			[]string{"r1 " + solo, "r2 RepeatedXID13OnDifferentGPCAndTPC"},
		},
		"XID 13 that is cut": {[]string{xid13 + "(GPC 3, TPC 1, SM", xid13 + "(GPC 3, TPC 1, SM"}, []string{"r1 " + solo}},
		"an ECC bit on one link": {
			[]string{xid74 + "link 2(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", xid74 + "link 2(0x20, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"},
			[]string{"r2 XID74Reg0ECCParityError"},
		},
		"an ECC bit on two links": {
			[]string{xid74 + "link 2(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", xid74 + "link 3(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"}, nil,
		},
		"a hardware bit, on any links": {
			[]string{xid74 + "link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", xid74 + "link 3(0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"},
			[]string{"r2 RepeatedXID74Reg0HardwareIssue"},
		},
		"bit 13 of register 2":         {[]string{xid74 + "link 2(0x0, 0x0, 0x2000, 0x0, 0x0, 0x0, 0x0)"}, []string{"r1 XID74Reg2Bit13Set"}},
		"bit 13 of register 1":         {[]string{xid74 + "link 2(0x0, 0x2000, 0x0, 0x0, 0x0, 0x0, 0x0)"}, nil},
		"bit 13 and another":           {[]string{xid74 + "link 2(0x0, 0x0, 0x2000, 0x0, 0x0, 0x0, 0x80000000)"}, nil},
		"bit 13 in a line that is cut": {[]string{xid74 + "link 2(0x0, 0x0, 0x2000, 0x0, 0x0, 0x0"}, nil},
		"a link alone":                 {[]string{xid74 + "link 2(0x2, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"}, []string{"r1 XID74Reg0SoloNVLinkError"}},
		"a link while another XID is open": {
			[]string{xid31, xid74 + "link 2(0x2, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"}, []string{"r1 " + solo},
		},
		"a link when the other XID is over": {
			[]string{xid31, reset, xid74 + "link 2(0x2, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"}, []string{"r1 " + solo, "r3 XID74Reg0SoloNVLinkError"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for strategy, want := range map[record.Strategy][]string{record.Process: tt.want, record.PersistOnly: nil} {
				k := newKernel(t)
				k.strategy = strategy
				var records []record.Record
				for _, line := range tt.lines {
					if line == reset {
						records = append(records, k.reset(thisGPU))
					} else {
						records = append(records, k.xid(line))
					}
					k.at += time.Minute
				}
				if diff := cmp.Diff(want, analyse(t, records)); diff != "" {
					t.Errorf("%s: derived (-want +got):\n%s", strategy, diff)
				}
			}
		})
	}
}

// evaluate makes fault-quarantine evaluate records of a Node, with a rule set that matches every
// fault.
func evaluate(node quarantine.Node, open, pending []record.Record, now time.Time) []record.Record {
	every := func(record.Event) rulematch.Ruling {
		return rulematch.Ruling{Names: []string{"every fault"}, Effects: record.Effects{Cordon: true}}
	}
	return quarantine.Evaluate(quarantine.View{Node: &node, Open: open, Pending: pending}, quarantine.Policy{Match: every, Retention: time.Hour}, now).Open
}

// TestDetailsKeepNoRecoveryAway: the same events end an XID whether its line has few or all
// details.
func TestDetailsKeepNoRecoveryAway(t *testing.T) {
	lines := map[string][]string{ // each without and with details
		"13": {xid13 + "an SM", xid13 + "(GPC 3, TPC 1, SM 0): Out Of Range Address"},
		"74": {xid74 + "a link", xid74 + "link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"},
	}
	event := func(e *protos.HealthEvent) func(*kernel) record.Record {
		return func(k *kernel) record.Record { return k.store(e) }
	}
	s := newKernel(t).sighting()
	for name, tt := range map[string]struct {
		recovery func(*kernel) record.Record
		machine  string // that the Node is now
		released bool
		ends     []string
	}{
		"the GPU is reset": {recovery: func(k *kernel) record.Record { return k.reset(thisGPU) }, ends: []string{"13"}}, // 74 is for a person
		"another is reset": {recovery: func(k *kernel) record.Record { return k.reset(otherGPU) }},
		"an XID cancels":   {recovery: event(xid.Cancellation(thisGPU, s, "162", []string{"74", "13"})), ends: []string{"13", "74"}},
		"one of another":   {recovery: event(xid.Cancellation(otherGPU, s, "162", []string{"74", "13"}))},
		"the GPU is well":  {recovery: event(xid.Cancellation(thisGPU, s, "", nil)), ends: []string{"13", "74"}},
		"a reboot":         {recovery: event(s.Healthy(xid.Check)), ends: []string{"13", "74"}},
		"a person":         {released: true, ends: []string{"13", "74"}},
		"another machine":  {machine: "m2", ends: []string{"13", "74"}},
	} {
		for code, both := range lines {
			for i, line := range both {
				k := newKernel(t)
				now := k.boot.Add(time.Hour)
				node := quarantine.Node{Identity: machine, Created: k.boot}
				open := evaluate(node, nil, []record.Record{k.xid(line)}, now)
				if len(open) != 1 {
					t.Fatalf("XID %s opens %d faults", code, len(open))
				}
				node.Session, node.Released = quarantine.Session(open), tt.released
				if tt.machine != "" {
					node.Identity = record.NodeIdentity{ProviderID: tt.machine, UID: "u2"}
				}
				var pending []record.Record
				if tt.recovery != nil {
					pending = append(pending, tt.recovery(k))
				}
				if ended := len(evaluate(node, open, pending, now)) == 0; ended != slices.Contains(tt.ends, code) {
					t.Errorf("%s, XID %s, with details %t: ended %t", name, code, i == 1, ended)
				}
			}
		}
	}
}

// TestChangingRegistersAreOneFault: a storm of XID 74 is one fault for each
// link, and a word about the GPU ends them all.
func TestChangingRegistersAreOneFault(t *testing.T) {
	const links, each = 18, 20
	k := newKernel(t)
	var storm []record.Record
	for i := range links * each {
		storm = append(storm, k.xid(fmt.Sprintf("%slink %d(0x%x, 0x%x, 0x0, 0x0, 0x0, 0x0, 0x0)", xid74, i%links, i, 1<<(i%32))))
	}
	node, now := quarantine.Node{Identity: machine, Created: k.boot}, k.boot.Add(time.Hour)
	open := evaluate(node, nil, storm, now)
	keys := map[string]bool{}
	for _, r := range open {
		for _, f := range r.Status.Faults {
			keys[f.Key] = true
		}
	}
	if len(keys) != links {
		t.Errorf("%d faults are open, want one for each of %d links", len(keys), links)
	}
	node.Session = quarantine.Session(open)
	well := k.store(xid.Cancellation(thisGPU, k.sighting(), "162", []string{"74"}))
	if left := evaluate(node, open, []record.Record{well}, now); len(left) > 0 {
		t.Errorf("%d records stay open", len(left))
	}
}
