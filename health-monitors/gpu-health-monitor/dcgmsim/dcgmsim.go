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

	mu         sync.Mutex
	run        int
	gpus       map[uint]reading.Device
	incidents  []reading.Incident
	latched    []reading.Incident
	fields     map[string]int64 // the newest values, by value
	timestamps map[string]int64 // those of some of them, in µs
	samples    []string
	xids       []string
	kernel     []sample // the kernel's records, which each life of the engine reads
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
	e := &Engine{Dir: dir, failed: failed, gpus: map[uint]reading.Device{}, fields: map[string]int64{}, timestamps: map[string]int64{}}
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
// its timestamps of them differ a little from those of its life before.
func (e *Engine) Start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run++
	e.latched, e.samples, e.xids = nil, nil, nil
	for i := range e.kernel {
		e.kernel[i].at = e.kernel[i].at.Add(time.Microsecond)
		e.keep(e.kernel[i])
	}
	e.write()
	e.writeFile("engine", fmt.Sprintln(e.run))
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

// UntilRestart lets HealthCheck show an incident until the engine starts again, like one
// that a reboot ends.
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

// Freeze stops the timestamps of all values at a time, as a driver that hangs does: the
// engine answers from its cache. The zero time lets them advance again.
func (e *Engine) Freeze(at time.Time) {
	if at.IsZero() {
		e.remove("frozen")
		return
	}
	e.writeFile("frozen", fmt.Sprintln(at.UnixMicro()))
}

// Unreadable has no value of some GPUs be readable; without any, all are again.
func (e *Engine) Unreadable(gpus ...uint) { e.flag("unreadable", strings.Trim(fmt.Sprint(gpus), "[]")) }

// Instances are the MIG instances of GPUs, by instance.
func (e *Engine) Instances(gpus map[reading.Entity]uint) {
	var lines strings.Builder
	for x, gpu := range gpus {
		fmt.Fprintf(&lines, "%d %d %d\n", x.Kind, x.ID, gpu)
	}
	e.writeFile("instances", lines.String())
}

// Field sets the newest value of a field of a GPU.
func (e *Engine) Field(gpu uint, field int, value int64) {
	e.Value(reading.Entity{Kind: reading.GPU, ID: gpu}, field, value, time.Time{})
}

// Value sets the newest value of a field of an entity, with a timestamp; the zero time is
// that of the call that asks.
func (e *Engine) Value(of reading.Entity, field int, value int64, at time.Time) {
	e.change(func() {
		key := fmt.Sprintf("%d %d %d", of.Kind, of.ID, field)
		e.fields[key] = value
		if delete(e.timestamps, key); !at.IsZero() {
			e.timestamps[key] = at.UnixMicro()
		}
	})
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

// Refuse has the engine refuse a call for entities: GroupAddEntity, or WatchFields or
// GetValuesSince of a group that holds one. Without any, it refuses none.
func (e *Engine) Refuse(call string, entities ...reading.Entity) {
	var lines strings.Builder
	for _, x := range entities {
		fmt.Fprintf(&lines, "%s %d %d\n", call, x.Kind, x.ID)
	}
	e.writeFile("refused", lines.String())
}

// Hang lets a call not return until Resume; * is every call.
func (e *Engine) Hang(call string) { e.writeFile("hang", call+"\n") }

// Resume ends Hang.
func (e *Engine) Resume() { e.remove("hang") }

// Crash lets a call end the process that makes it, as a missing symbol does; empty
// ends that.
func (e *Engine) Crash(call string) { e.flag("crash", call) }

// Unwatch takes every health watch away, or gives it back.
func (e *Engine) Unwatch(gone bool) {
	if gone {
		e.writeFile("unwatched", "1\n")
		return
	}
	e.remove("unwatched")
}

// DeadInit lets connections succeed that are dead.
func (e *Engine) DeadInit(dead bool) {
	if dead {
		e.writeFile("deadinit", "1\n")
		return
	}
	e.remove("deadinit")
}

func (e *Engine) flag(name, content string) {
	if content == "" {
		e.remove(name)
		return
	}
	e.writeFile(name, content+"\n")
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
	var gpus, incidents, fields, timestamps strings.Builder
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
	for at, timestamp := range e.timestamps {
		fmt.Fprintf(&timestamps, "%s %d\n", at, timestamp)
	}
	e.writeFile("gpus", gpus.String())
	e.writeFile("incidents", incidents.String())
	e.writeFile("fields", fields.String())
	e.writeFile("stamps", timestamps.String())
	e.writeFile("samples", strings.Join(e.samples, ""))
	e.writeFile("xids", strings.Join(e.xids, ""))
}

func (e *Engine) writeFile(name, content string) {
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
