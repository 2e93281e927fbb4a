package demo_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/demo"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

func options(t *testing.T, store string) demo.Options {
	t.Helper()
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	return demo.Options{
		Out: &bytes.Buffer{}, StepLimit: 3 * time.Minute,
		Fleet: fleet.Options{
			Nodes: 4, Store: store, Root: root, Bin: binaries(t, root), Progress: &bytes.Buffer{},
			SettleTime: time.Second, RebootTime: time.Second,
		},
	}
}

var built string

// binaries builds the services once for all tests of the package.
func binaries(t *testing.T, root string) string {
	t.Helper()
	if built == "" {
		dir, err := fleet.Build(t.Context(), root, dir, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		built = dir
	}
	return built
}

// settling leaves time to evaluate the repair before the monitor reports the recovery, as make
// demo does: a session that ends before bears no label of it.
func settling(t *testing.T, store string) demo.Options {
	t.Helper()
	o := options(t, store)
	o.Fleet.SettleTime = 10 * time.Second
	return o
}

func TestDemo(t *testing.T) {
	for name, store := range map[string]string{"sqlite": "sqlite", "postgresql": "postgresql"} {
		t.Run(name, func(t *testing.T) {
			if store != "sqlite" {
				testkit.Long(t, "the chaos test runs on every store")
			}
			o := settling(t, store)
			if store != "sqlite" {
				o.DCGM = withDCGM(t, o)
			}
			if err := demo.Run(t.Context(), o); err != nil {
				t.Errorf("%v\n%s", err, o.Out)
			}
		})
	}
}

// TestDemoInOneProcess: the controllers take a fault to a repaired node from one process,
// as the chart's profile small has it, each under its own account.
func TestDemoInOneProcess(t *testing.T) {
	testkit.Long(t, "internal/daemon TestSeveralAreOneProcess and its siblings run several controllers in one process")
	o := settling(t, "sqlite")
	o.Fleet.Together = true
	if err := demo.Run(t.Context(), o); err != nil {
		t.Errorf("%v\n%s", err, o.Out)
	}
}

// withDCGM builds what sees faults by DCGM.
func withDCGM(t *testing.T, o demo.Options) string {
	t.Helper()
	built := t.TempDir()
	if err := fleet.BuildDCGM(t.Context(), o.Fleet.Root, built, o.Out); err != nil && !errors.Is(err, dcgmsim.ErrNoCompiler) {
		t.Fatal(err)
	} else if err != nil {
		return ""
	}
	return built
}

func TestDemoPersistOnly(t *testing.T) {
	o := settling(t, "sqlite")
	o.PersistOnly = true
	err := demo.Run(t.Context(), o)
	if err != nil || !strings.Contains(o.Out.(*bytes.Buffer).String(), "byte-equal") {
		t.Errorf("%v\n%s", err, o.Out)
	}
}

// TestEveryServiceIsNeeded: without a service the demo fails, and reports at which step it
// stopped.
func TestEveryServiceIsNeeded(t *testing.T) {
	testkit.Long(t, "TestDemo shows each room's step")
	for _, service := range fleet.Services() {
		t.Run(service, func(t *testing.T) {
			o := options(t, "sqlite")
			o.Fleet.Without, o.StepLimit = service, 8*time.Second
			err := demo.Run(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), "waited 8s for") {
				t.Errorf("without %s: %v\n%s", service, err, o.Out)
			}
		})
	}
}
