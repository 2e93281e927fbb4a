// Package dcgmsim is a DCGM for tests: a library of our own in the place of
// libdcgm.so.4 (testdata/sim.c, built with gcc), and the host engine that it talks
// to, which is a folder of files. It keeps books, and does what a real DCGM 4.6.0
// was measured to do where that surprises.
//
// "Measured" is the answer of a DCGM 4.6.0 host engine with NVML injection, eight
// injected H100 and no hardware. "Read" was read in DCGM's public source and not run.
//
//	case                        DCGM 4.6.0                               simulated
//	add a Lost (4) GPU          measured: -18, GPU is lost               the same
//	add a Disabled (6) or       measured: -1, Bad parameter              the same
//	Detached (7) GPU
//	entity list                 measured: has those GPUs all the same    the same
//	status of a GPU whose       measured: stays 1 (OK)                   the same
//	driver hangs
//	stamp of a newest value     measured: time of its own sample         now, or the time of Freeze
//	driver hangs                measured: calls answer from the cache,   Freeze: the same
//	                            stamps stop, field 54 keeps its value
//	value that cannot be read   measured: status 0, blank                Field with a blank, Unreadable
//	                            (0x7ffffffffffffff0 and on)
//	UUID that cannot be read    measured: status 0, <<<NULL>>>           Unreadable
//	incident whose newest       measured: dropped, overall PASS          the same, for the fields of
//	sample is blank or older                                             the fault table
//	than 60 s
//	code 11, power unreadable   measured: newest sample of 155 is        the same
//	                            blank
//	XID 119 or 120 of the       measured: no incident of its own; every  KernelXID and Unreadable
//	kernel log                  value of every GPU blank, code 11 each
//	XID of the kernel log       measured: no incident, stamped with the  KernelXID, AppendXID
//	                            kernel's time, appended later
//	XID while the driver hangs  measured: appended up to minutes later   AppendXID
//	engine started again        measured: latched incidents are gone;    Start: the same
//	                            the kernel's records are read again,
//	                            their stamps differ by 1 us
//	machine started again       the kernel's records are gone            Reboot: the same
//	XID on a MIG instance       measured with fake instances: under      AppendXID: the same
//	                            FE_GPU_I or FE_GPU_CI, no incident
//	parent of an instance       read: dcgmGetGpuInstanceHierarchy        Instances
//	latched incidents of XIDs   measured: 79, 95, 94, 31, 48, 74, 119,   the same, of all these
//	                            120, 140 (field 230); 63, 64, 60, 57
//	                            make the codes of other fields
//	NVSwitches, SXIDs           not measured                             Switches: listed, no values
//
// What it does not do: sample in cycles of 30 s (values are as new as the call), rates
// over a minute, links that are read live, the hourly sample of field 84.
package dcgmsim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// Engine is a host engine and the GPUs that it sees.
type Engine struct {
	Dir    string
	failed func(error)

	mu        sync.Mutex
	life      int
	gpus      map[uint]reading.Device
	incidents []reading.Incident
	latched   []reading.Incident
	fields    map[string]int64
	samples   []string
	xids      []string
	kernel    []sample // the kernel's records, which each life of the engine reads
}

// sample is one XID as the engine keeps it.
type sample struct {
	entity    reading.Entity
	number    int64
	at, after time.Time // its stamp, and when it is appended
}

// New makes an engine that runs, with healthy GPUs, for a test.
func New(t testing.TB, gpus uint) *Engine {
	t.Helper()
	var devices []reading.Device
	for id := range gpus {
		devices = append(devices, reading.Device{
			ID: id, Status: reading.OK, UUID: fmt.Sprintf("GPU-%08d", id), PCI: fmt.Sprintf("00000000:%02X:00.0", 0x10+id),
		})
	}
	return Open(t.TempDir(), devices, func(err error) { t.Fatal(err) })
}

// Open makes an engine that runs in a folder, with GPUs numbered from 0; failed
// hears of a file that could not be read or written.
func Open(dir string, gpus []reading.Device, failed func(error)) *Engine {
	e := &Engine{Dir: dir, failed: failed, gpus: map[uint]reading.Device{}, fields: map[string]int64{}}
	for _, x := range gpus {
		e.gpus[x.ID] = x
	}
	e.Start()
	return e
}

// Environment is what a program needs to meet this engine in the library in libs.
func (e *Engine) Environment(libs string) []string {
	return []string{"DCGMSIM_DIR=" + e.Dir, "LD_LIBRARY_PATH=" + libs, "LD_BIND_NOW="}
}

// Start starts the engine, or starts it again: what it latched is forgotten, and
// connections to its life before are void. It reads the kernel's records again, and
// its stamps of them differ a little from those of its life before.
func (e *Engine) Start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life++
	e.latched, e.samples, e.xids = nil, nil, nil
	for i := range e.kernel {
		e.kernel[i].at = e.kernel[i].at.Add(time.Microsecond)
		e.keep(e.kernel[i])
	}
	e.write()
	e.put("engine", fmt.Sprintln(e.life))
}

// Reboot starts the engine again with its machine: the kernel's records are gone.
func (e *Engine) Reboot() {
	e.mu.Lock()
	e.kernel = nil
	e.mu.Unlock()
	e.Start()
}

// Stop ends the engine as a crash does.
func (e *Engine) Stop() { e.remove("engine") }

// Incident lets HealthCheck show an incident until Clear.
func (e *Engine) Incident(x reading.Incident) {
	e.change(func() { e.incidents = append(e.incidents, x) })
}

// UntilRestart lets HealthCheck show an incident until the engine starts again, as
// what a reboot mends.
func (e *Engine) UntilRestart(x reading.Incident) {
	e.change(func() { e.latched = append(e.latched, x) })
}

// Clear ends what Incident began on every entity with a code; 0 is every code.
func (e *Engine) Clear(code uint) {
	e.change(func() {
		var left []reading.Incident
		for _, x := range e.incidents {
			if code != 0 && x.Code != code {
				left = append(left, x)
			}
		}
		e.incidents = left
	})
}

// shown are the incidents that an XID makes, as measured: they stay until the
// engine is started again.
var shown = map[int64]reading.Incident{
	79: {System: reading.AllSystems, Health: reading.Fail, Code: 120},
	94: {System: reading.AllSystems, Health: reading.Warn, Code: 131},
	95: {System: reading.AllSystems, Health: reading.Fail, Code: 81},
	31: {System: 0x10, Health: reading.Warn, Code: 101},

	48:  {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	74:  {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	119: {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	120: {System: reading.AllSystems, Health: reading.Fail, Code: 101},
	140: {System: reading.AllSystems, Health: reading.Fail, Code: 101},

	57: {System: 0x100, Health: reading.Warn, Code: 12},
	60: {System: 0x80, Health: reading.Warn, Code: 10},
	63: {System: 0x10, Health: reading.Warn, Code: 6},
	64: {System: 0x10, Health: reading.Fail, Code: 80},
}

// XID happens on a GPU, as the driver's event tells it; several happen at once.
func (e *Engine) XID(gpu uint, numbers ...int64) {
	e.change(func() {
		now := time.Now()
		for _, number := range numbers {
			if x, ok := shown[number]; ok {
				x.Entity = reading.Entity{Kind: reading.GPU, ID: gpu}
				e.latched = append(e.latched, x)
			}
			e.record(sample{reading.Entity{Kind: reading.GPU, ID: gpu}, number, now, now})
			e.xids = append(e.xids, fmt.Sprintf("%d %d %d\n", gpu, number, now.UnixMicro()))
		}
	})
}

// KernelXID is one that the engine reads in the kernel's messages: no incident
// shows it, and its sample bears the kernel's time and comes later.
func (e *Engine) KernelXID(gpu uint, number int64, late time.Duration) {
	e.change(func() {
		now := time.Now()
		e.record(sample{reading.Entity{Kind: reading.GPU, ID: gpu}, number, now, now.Add(late)})
	})
}

// AppendXID appends an XID of a GPU or a MIG instance now, with the kernel's stamp of a
// time before: the engine cannot append any while the driver hangs.
func (e *Engine) AppendXID(entity reading.Entity, number int64, at time.Time) {
	e.change(func() { e.record(sample{entity, number, at, at}) })
}

// record keeps an XID in the kernel's records and appends it.
func (e *Engine) record(x sample) {
	e.kernel = append(e.kernel, x)
	e.keep(x)
}

func (e *Engine) keep(x sample) {
	e.samples = append(e.samples, fmt.Sprintf("%d %d 230 %d %d %d\n", x.entity.Kind, x.entity.ID, x.number, x.at.UnixMicro(), x.after.UnixMicro()))
}

// Freeze stops the stamps of all values at a time, as a driver that hangs does: the
// engine answers from its cache. The zero time lets them advance again.
func (e *Engine) Freeze(at time.Time) {
	if at.IsZero() {
		e.remove("frozen")
		return
	}
	e.put("frozen", fmt.Sprintln(at.UnixMicro()))
}

// Unreadable has no value of some GPUs be readable; without any, all are again.
func (e *Engine) Unreadable(gpus ...uint) { e.flag("unreadable", strings.Trim(fmt.Sprint(gpus), "[]")) }

// Instances are the MIG instances of GPUs, by instance.
func (e *Engine) Instances(gpus map[reading.Entity]uint) {
	var lines strings.Builder
	for x, gpu := range gpus {
		fmt.Fprintf(&lines, "%d %d %d\n", x.Kind, x.ID, gpu)
	}
	e.put("instances", lines.String())
}

// Field sets the newest value of a field of a GPU.
func (e *Engine) Field(gpu uint, field int, value int64) {
	e.change(func() { e.fields[fmt.Sprintf("%d %d %d", reading.GPU, gpu, field)] = value })
}

// Status sets that of a GPU.
func (e *Engine) Status(gpu uint, s reading.Status) {
	e.change(func() {
		d := e.gpus[gpu]
		d.Status = s
		e.gpus[gpu] = d
	})
}

// Switches are the NVSwitches that the engine sees; without any, their module is not
// loaded.
func (e *Engine) Switches(ids ...uint) { e.flag("switches", strings.Trim(fmt.Sprint(ids), "[]")) }

// Hang lets a call not return until Resume; * is every call.
func (e *Engine) Hang(call string) { e.put("hang", call+"\n") }

// Resume ends Hang.
func (e *Engine) Resume() { e.remove("hang") }

// Crash lets a call end the process that makes it, as a missing symbol does; empty
// ends that.
func (e *Engine) Crash(call string) { e.flag("crash", call) }

// Unwatch takes every health watch away, or gives it back.
func (e *Engine) Unwatch(gone bool) {
	if gone {
		e.put("unwatched", "1\n")
		return
	}
	e.remove("unwatched")
}

// DeadInit lets connections succeed that are dead.
func (e *Engine) DeadInit(dead bool) {
	if dead {
		e.put("deadinit", "1\n")
		return
	}
	e.remove("deadinit")
}

func (e *Engine) flag(name, content string) {
	if content == "" {
		e.remove(name)
		return
	}
	e.put(name, content+"\n")
}

// Calls counts the calls of a name so far.
func (e *Engine) Calls(name string) (n int) {
	data, err := os.ReadFile(filepath.Join(e.Dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		e.failed(err)
	}
	for line := range strings.Lines(string(data)) {
		if _, call, _ := strings.Cut(strings.TrimSpace(line), " "); call == name {
			n++
		}
	}
	return n
}

func (e *Engine) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
	e.write()
}

// write writes what the library reads.
func (e *Engine) write() {
	var gpus, incidents, fields strings.Builder
	for id := range uint(len(e.gpus)) {
		d := e.gpus[id]
		fmt.Fprintf(&gpus, "%d %d %s %s\n", d.ID, d.Status, d.UUID, d.PCI)
	}
	for latched, list := range [][]reading.Incident{e.incidents, e.latched} {
		for _, x := range list {
			fmt.Fprintf(&incidents, "%d %d %d %d %d %d %s\n", latched, x.System, x.Health, x.Code, x.Entity.Kind, x.Entity.ID, x.Text)
		}
	}
	for at, value := range e.fields {
		fmt.Fprintf(&fields, "%s %d\n", at, value)
	}
	e.put("gpus", gpus.String())
	e.put("incidents", incidents.String())
	e.put("fields", fields.String())
	e.put("samples", strings.Join(e.samples, ""))
	e.put("xids", strings.Join(e.xids, ""))
}

func (e *Engine) put(name, content string) {
	path := filepath.Join(e.Dir, name)
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		e.failed(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		e.failed(err)
	}
}

func (e *Engine) remove(name string) {
	if err := os.Remove(filepath.Join(e.Dir, name)); err != nil && !os.IsNotExist(err) {
		e.failed(err)
	}
}
