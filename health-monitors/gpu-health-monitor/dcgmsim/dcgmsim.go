// Package dcgmsim is a DCGM for tests: a library of our own in the place of
// libdcgm.so.4 (testdata/sim.c, built with gcc), and the host engine that it talks
// to, which is a folder of files. It keeps books, and does what a real DCGM 4.6.0
// was measured to do where that surprises.
package dcgmsim

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

//go:embed testdata/*.c
var sources embed.FS

// ErrNoCompiler says that there is no gcc, or one that lacks the C library's headers.
var ErrNoCompiler = errors.New("no working C compiler: building the simulated DCGM needs gcc and libc6-dev")

// Build builds the library into dir, for LD_LIBRARY_PATH, against the headers of the
// go-dcgm that the workspace uses: it runs within that.
func Build(ctx context.Context, dir string) error {
	gcc, err := compiler(ctx)
	if err != nil {
		return err
	}
	headers, err := headersOf(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"sim.c", "policy.c"} {
		source, err := sources.ReadFile("testdata/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), source, 0o600)
		}
		if err != nil {
			return fmt.Errorf("writing the simulated DCGM: %w", err)
		}
	}
	out, err := exec.CommandContext(ctx, gcc, "-shared", "-fPIC", "-O1", "-Wall", "-Wno-format-truncation", "-pthread",
		"-I", headers, "-Wl,-soname,libdcgm.so.4",
		"-o", filepath.Join(dir, "libdcgm.so.4"), filepath.Join(dir, "sim.c")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the simulated DCGM: %w\n%s", err, out)
	}
	return nil
}

// compiler returns the path of a gcc that can compile a program. ErrNoCompiler is what
// gcc itself answers: one that cannot be started, or is killed, may be a working one.
func compiler(ctx context.Context) (string, error) {
	gcc, err := exec.LookPath("gcc")
	if errors.Is(err, exec.ErrNotFound) {
		return "", ErrNoCompiler
	}
	if err != nil {
		return "", fmt.Errorf("looking for gcc: %w", err)
	}
	trial := exec.CommandContext(ctx, gcc, "-fsyntax-only", "-x", "c", "-")
	trial.Stdin = strings.NewReader("#include <pthread.h>\n")
	out, err := trial.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return "", fmt.Errorf("%w: %w\n%s", ErrNoCompiler, err, out)
	}
	if err != nil {
		return "", fmt.Errorf("trying gcc: %w", err)
	}
	return gcc, nil
}

// headersOf returns the folder of go-dcgm's headers. It lists the package, because
// listing the module prints no folder while the module cache does not hold it.
func headersOf(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-find", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm/pkg/dcgm")
	list.Env = append(os.Environ(), "CGO_ENABLED=1") // without cgo the package has no files
	var out, problems strings.Builder
	list.Stdout, list.Stderr = &out, &problems
	if err := list.Run(); err != nil {
		return "", fmt.Errorf("finding go-dcgm's headers: %w\n%s", err, problems.String())
	}
	return strings.TrimSpace(out.String()), nil
}

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
// connections to its life before are void.
func (e *Engine) Start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life++
	e.latched, e.samples, e.xids = nil, nil, nil
	e.write()
	e.put("engine", fmt.Sprintln(e.life))
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
			e.sample(gpu, number, now, now)
			e.xids = append(e.xids, fmt.Sprintf("%d %d %d\n", gpu, number, now.UnixMicro()))
		}
	})
}

// KernelXID is one that the engine reads in the kernel's messages: no incident
// shows it, and its sample bears the kernel's time and comes later.
func (e *Engine) KernelXID(gpu uint, number int64, late time.Duration) {
	e.change(func() {
		now := time.Now()
		e.sample(gpu, number, now, now.Add(late))
	})
}

func (e *Engine) sample(gpu uint, number int64, at, after time.Time) {
	e.samples = append(e.samples, fmt.Sprintf("%d %d 230 %d %d %d\n", reading.GPU, gpu, number, at.UnixMicro(), after.UnixMicro()))
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
	for _, x := range append(append([]reading.Incident(nil), e.incidents...), e.latched...) {
		fmt.Fprintf(&incidents, "%d %d %d %d %d %s\n", x.System, x.Health, x.Code, x.Entity.Kind, x.Entity.ID, x.Text)
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
