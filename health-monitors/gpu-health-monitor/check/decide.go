package check

import (
	"fmt"
	"maps"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
)

// View is what is known when a poll is evaluated.
type View struct {
	Now time.Time
	// Boot is the id of the running boot; empty when it cannot be read.
	Boot string
	// Reading is the result of the poll; nil if it failed, then Failure is why.
	Reading *reading.Reading
	Failure *reading.Failure
	// Connected is when the connection that was looked through began.
	Connected time.Time
	Inventory nodefile.Inventory
}

// Reason is why an event is reported.
type Reason string

// Reasons.
const (
	// Began: a fault was found in as many readings as `raise` of the check asks for, so it is reported for the
	// first time. Action: none. `nvsentinel why <node>` shows the fault and its repair.
	Began Reason = "Began"
	// Worse: a fault that was reported as not fatal is fatal now, so it is reported again. Action: none.
	// `nvsentinel why <node>` shows the fault and its repair.
	Worse Reason = "BecameFatal"
	// Escalated: DCGM gave no usable answer in `connectivityFailureEscalationThreshold` readings in a row, so the
	// fault is reported again with the action RESTART_BM. Action: check the DCGM host engine of the node.
	Escalated Reason = "Escalated"
	// AfterReboot: the fault was reported before a reboot and is still there, so it is reported again under the
	// new boot. Action: inspect the device if no further repair follows (`nvsentinel why <node>`), because the
	// reboot did not end the fault.
	AfterReboot Reason = "AfterReboot"
	// Processed: the fault was reported as PERSIST_ONLY and the strategy of the check is PROCESS now, so it is
	// reported again and fault-quarantine acts on it. Action: none.
	Processed Reason = "StrategyChanged"
	// Ended: as many readings as `clear` of the check asks for do not show the fault, so its recovery is reported.
	// Action: none.
	Ended Reason = "Ended"
	// Reset: the driver asked for a reset of the GPU and asks for none any more, so the recovery of the fault is
	// reported. Action: none.
	Reset Reason = "Reset"
	// Replaced: another GPU is at the PCI address of the faulty one after a reboot, so the recovery of the fault
	// is reported. Action: none.
	Replaced Reason = "Replaced"
	// Restarted: the fault of an NVSwitch is of an earlier boot, and DCGM shows it no more and has no samples of
	// the field that shows it, so its recovery is reported. Action: none.
	Restarted Reason = "Restarted"
	// CuredByReboot: the fault is a single event of an earlier boot that a reboot cures, so its recovery is
	// reported. Action: none.
	CuredByReboot Reason = "CuredByReboot"
)

// Report is an event about the fault of a key, and why.
type Report struct {
	Key    string
	Event  *protos.HealthEvent
	Reason Reason
}

// Outcome is the result of a poll: State and Reports belong into one step on the disk;
// Memory is the process's.
type Outcome struct {
	State   State
	Memory  Memory
	Reports []Report
	// Changed is true if State is not what it was.
	Changed bool
	// Suppressed counts the incidents that were, by code; Unknown those of health
	// systems that are not known; Latched the faults of past boots that DCGM still
	// shows and that are not reported again; NewXIDs the XIDs seen for the first time.
	Suppressed map[string]int
	Unknown    int
	Latched    int
	NewXIDs    []reading.XID
	// Unreadable is true if DCGM answered and could read no GPU: the poll shows nothing.
	Unreadable bool
}

// deciding is one decision under way.
type deciding struct {
	Outcome
	p    Policy
	v    View
	seen map[string]bool // keys of faults that the look shows
	// recovered are the GPUs that need no recovery, as the driver reports.
	recovered map[string]bool
}

// Decide evaluates one poll.
func Decide(s State, m Memory, v View, p Policy) Outcome {
	d := &deciding{Outcome: Outcome{State: s.Clone(), Memory: m.clone()}, p: p, v: v, seen: map[string]bool{}, recovered: map[string]bool{}}
	if v.Boot != "" && d.State.Boot != v.Boot {
		d.boot()
	}
	d.link()
	switch {
	case v.Reading == nil:
		d.failed(d.unanswered())
	case unreadable(*v.Reading):
		d.Unreadable = true
		d.take(*v.Reading)
		d.failed(d.unread())
	default:
		d.Memory.failures = 0
		f := d.take(*v.Reading)
		d.unshown()
		d.ends(f, *v.Reading)
	}
	return d.Outcome
}

// boot takes a boot id that was not seen before. Of faults of an unknown boot it may be
// the same.
func (d *deciding) boot() {
	d.State.Boot, d.Changed = d.v.Boot, true
	clear(d.State.LastXID) // of no use but under its boot, and GPUs come and go
	clear(d.State.Latching)
	for key, f := range d.State.Faults {
		if f.Boot == "" {
			f.Boot = d.v.Boot
			d.State.Faults[key] = f
		}
	}
}

// unanswered is that DCGM does not answer.
func (d *deciding) unanswered() finding {
	x := finding{
		check: Connectivity, code: CodeConnectivity, action: record.ActionContactSupport, fatal: true, text: "DCGM does not respond",
		extra: map[string]string{"dcgm_mode": mode(d.p.Embedded)},
	}
	if f := d.v.Failure; f != nil {
		x.text, x.extra["probe_operation"] = f.Error(), f.Operation
		if f.Trouble == reading.Hung {
			x.code = CodeHang
		}
	}
	if x.code == CodeHang && d.p.Embedded {
		x.check, x.action = Unresponsive, record.ActionRestartBM
	}
	return x
}

// unread is that DCGM answers and can read no GPU.
func (d *deciding) unread() finding {
	x := finding{
		check: Connectivity, code: CodeUnreadable, action: record.ActionContactSupport, fatal: true, text: TextUnreadable,
		extra: map[string]string{"dcgm_mode": mode(d.p.Embedded)},
	}
	if f, ok := d.State.stuck(); ok {
		x.text += fmt.Sprintf(", after XID %s of %s", f.Code, f.Of)
		x.extra["xid"], x.extra["gpu_uuid"] = f.Code, f.Of
	}
	return x
}

// TextUnreadable is the meaning of a poll in which no GPU can be read.
const TextUnreadable = "DCGM responds, but no value of any GPU is readable or has a recent sample"

// failed evaluates a poll that showed nothing: nothing is healthy by it.
func (d *deciding) failed(x finding) {
	clear(d.Memory.clear)
	d.Memory.failures++
	if d.p.EscalateAfter > 0 && d.Memory.failures >= d.p.EscalateAfter {
		x.action = record.ActionRestartBM
	}
	if !d.p.Suppressed[x.code] {
		d.shown(x)
	}
}

func mode(embedded bool) string {
	if embedded {
		return "embedded"
	}
	return "remote"
}

// take evaluates what a reading shows.
func (d *deciding) take(r reading.Reading) *found {
	d.freshen(r)
	d.name(r.Devices)
	d.xids(r.XIDs)
	f := find(d.State, r, d.v.Inventory, d.p)
	d.Suppressed, d.Unknown = f.suppressed, f.unknown
	d.powerless(f, r)
	for _, key := range f.order {
		x := f.by[key]
		open, ok := d.State.Faults[key]
		switch {
		case ok && latchedCodes[x.code] && d.past(open) && d.State.LastXID[x.of] != d.State.Boot:
			// The host engine outlived the reboot, and so did what it shows.
			d.Latched++
			d.standing(key)
		case x.code == codePower && !d.unpowered(x, r):
			d.standing(key)
		default:
			d.shown(x)
		}
	}
	d.recovery(r.Devices)
	return f
}

// standing takes what the poll shows and what is not reported again: it has not ended.
func (d *deciding) standing(key string) {
	d.seen[key] = true
	delete(d.Memory.clear, key)
}

// name remembers the names of GPUs while DCGM reports them. A GPU that is lost while a poll
// reads them has a UUID and no PCI address: the address that is known of this UUID stays.
func (d *deciding) name(devices []reading.Device) {
	for _, x := range devices {
		n, known := Names{x.UUID, x.PCI}, d.State.Devices[x.ID]
		if n.PCI == "" && known.UUID == n.UUID {
			n.PCI = known.PCI
		}
		if x.UUID == "" || known == n {
			continue
		}
		if known.UUID == "" {
			d.State.adopt(x.ID, x.UUID)
		}
		d.State.Devices[x.ID], d.Changed = n, true
	}
}

// link remembers the GPUs whose NVLinks are up: the file has 0 for a bridge that has broken
// as for one that never was.
func (d *deciding) link() {
	for pci, gpu := range d.v.Inventory.ByPCI {
		if gpu.ActiveLinks != nil && *gpu.ActiveLinks > 0 && d.State.Linked[pci] != gpu.UUID {
			d.State.Linked[pci], d.Changed = gpu.UUID, true
		}
	}
}

// past reports whether a fault is of an earlier boot than the one seen last: a boot id that
// cannot be read any more makes nothing new.
func (d *deciding) past(f Fault) bool { return f.Boot != "" && f.Boot != d.State.Boot }

// shown takes a fault that the look shows.
func (d *deciding) shown(x finding) {
	key, rule := x.key(), d.p.rule(x.check)
	d.standing(key)
	d.Memory.raise[key] = d.Memory.raise[key].add(true)
	if _, ok := d.Memory.since[key]; !ok {
		d.Memory.since[key] = d.v.Now
	}
	often := d.Memory.raise[key].reach(rule.Raise) && d.v.Now.Sub(d.Memory.since[key]) >= rule.For
	if !x.edge && !often { // an event is seen once
		return
	}
	open, ok := d.State.Faults[key]
	if open.Cleared {
		return
	}
	if ok && len(open.Fields) == 0 {
		d.evident(key, open, x)
	}
	action := d.action(x)
	switch {
	case !ok:
		d.report(x, action, Began)
	case d.past(open):
		d.report(x, action, AfterReboot)
	case x.fatal && !open.Fatal:
		d.report(x, action, Worse)
	case action != open.Action && action == record.ActionRestartBM && x.entity.Kind == reading.NoEntity:
		d.report(x, action, Escalated)
	case open.Strategy == record.PersistOnly && rule.Strategy == record.Process:
		d.report(x, action, Processed)
	}
}

// evident remembers by which fields an open fault is shown, which could not be read before.
func (d *deciding) evident(key string, f Fault, x finding) {
	if f.Fields = d.shownBy(x); len(f.Fields) > 0 {
		d.State.Faults[key], d.Changed = f, true
	}
}

// action downgrades the reset of one GPU to a restart of the machine where nobody
// knows which GPU it is.
func (d *deciding) action(x finding) record.Action {
	if x.action != record.ActionComponentReset {
		return x.action
	}
	e := x.entity
	if x.parent != nil {
		e = *x.parent
	}
	if n := d.names(e); n.UUID == "" || n.PCI == "" {
		return record.ActionRestartVM
	}
	return x.action
}

// report reports a fault and remembers it.
func (d *deciding) report(x finding, action record.Action, why Reason) {
	rule := d.p.rule(x.check)
	old, was := d.State.Faults[x.key()]
	f := Fault{
		Check: x.check, Code: x.code, Entity: x.entity, Of: x.of, Names: d.namesOf(x), Strategy: rule.Strategy, Action: action,
		Fatal: x.fatal, Boot: d.v.Boot, Since: d.v.Now, Edge: x.edge, Cured: x.cured, Field: x.field,
		Fields: d.shownBy(x), Latched: d.latches(x),
	}
	if r := d.v.Reading; r != nil && f.Of == "" {
		f.GPUs, f.Switches = len(r.Devices), len(r.Switches)
	}
	if was {
		f.Since = old.Since
		if old.Strategy == record.Process {
			f.Strategy = record.Process
		}
		f.Names, f.IDs = old.Names, old.IDs // the recovery lists what the first event did
		if len(old.Fields) > 0 {
			f.Fields = old.Fields
		}
	}
	if f.Boot == "" {
		f.Boot = d.State.Boot
	}
	e := d.event(f)
	e.IsFatal, e.Message, e.RecommendedAction = x.fatal, x.text, record.ActionNumber(action)
	e.ProcessingStrategy = record.StrategyNumber(rule.Strategy)
	maps.Copy(e.Metadata, x.extra)
	d.State.Faults[x.key()] = f
	d.Reports, d.Changed = append(d.Reports, Report{x.key(), e, why}), true
}

// unshown remembers which faults that are not reported yet were not shown.
func (d *deciding) unshown() {
	for key, seen := range d.Memory.raise {
		if d.seen[key] {
			continue
		}
		delete(d.Memory.since, key)
		if seen = seen.add(false); seen == 0 {
			delete(d.Memory.raise, key)
			continue
		}
		d.Memory.raise[key] = seen
	}
}
