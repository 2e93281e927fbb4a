package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/internal/nvml"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

var scratch string

// TestMain is also the process that asks the driver, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == nvml.Argument {
		os.Exit(nvml.Main(os.Args[2], os.Stdout, os.Stderr))
	}
	var err error
	if scratch, err = os.MkdirTemp("", "nvml"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := localcluster.Main(m)
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// libraries are the simulated driver's, whole and with the least that works.
var libraries = sync.OnceValues(func() (map[string]string, error) {
	out := map[string]string{"whole": filepath.Join(scratch, "whole.so"), "few": filepath.Join(scratch, "few.so")}
	for name, flag := range map[string]string{"whole": "-DWHOLE", "few": "-DFEW"} {
		text, err := exec.Command("gcc", "-Wall", "-Werror", "-shared", "-fPIC", flag, "-Wl,-soname,libnvidia-ml.so.1", "-o", out[name], "testdata/nvml.c").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("building the simulated driver: %w\n%s", err, text)
		}
	}
	return out, nil
})

// node is a collector on a node of files.
type node struct {
	*Collector
	t      *testing.T
	dir    string
	clock  *clocktesting.FakeClock
	driver *nvml.Driver
}

func newNode(t *testing.T, library string) *node {
	t.Helper()
	if err := nvml.Missing(); err != nil {
		t.Skip(err) // tests with the race detector have cgo
	}
	paths, err := libraries()
	if err != nil {
		t.Fatal(err)
	}
	driver, err := nvml.New(paths[library], time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: t.TempDir(), clock: testkit.NewClock(), driver: driver}
	n.writeFile("boot_id", "boot-1")
	n.writeFile("proc/version", "570.1")
	n.writeFile("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n")
	t.Setenv("NVML_SIM", n.path("sim"))
	n.Collector = &Collector{
		Node: "n1", Path: n.path("state/gpu_metadata.json"), Sysfs: n.path("sys"), DriverPath: n.path("proc"), Interval: time.Second,
		Refresh: 10 * time.Minute, Driver: driver, Clock: n.clock, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
		BootID: func() (string, error) { data, err := os.ReadFile(n.path("boot_id")); return string(data), err },
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) writeFile(name, content string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// poll looks, a minute later, and returns what the monitors read then.
func (n *node) poll() (nodefile.Inventory, os.FileInfo) {
	n.t.Helper()
	n.clock.Step(time.Minute)
	if err := n.Poll(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	info, err := os.Stat(n.Path)
	if err != nil {
		n.t.Fatal(err)
	}
	data, err := os.ReadFile(n.Path)
	if err != nil {
		n.t.Fatal(err)
	}
	inv, err := nodefile.ParseGPUs(data, strings.ToLower)
	if err != nil {
		n.t.Fatal(err)
	}
	return inv, info
}

const (
	first  = "gpu GPU-aaaa 00000000:3B:00.0 111 NVIDIA_H100 18 18 00000000:C1:00.0 -2"
	second = "gpu GPU-bbbb 00000000:5E:00.0 222 NVIDIA_H100 18 17 00000000:C1:00.0 -2"
)

func TestTheFileFollowsTheDriver(t *testing.T) {
	n := newNode(t, "whole")
	n.writeFile("sim", "driver 570.1\n"+first+"\n"+second+"\n")
	inv, written := n.poll()
	if inv.Driver != "570.1" || inv.ByPCI["0000:3b:00.0"].UUID != "GPU-aaaa" || inv.ByPCI["0000:5e:00.0"].Index != "1" {
		t.Errorf("the file says %+v", inv)
	}
	if got := inv.ByPort[nodefile.Port{PCI: "0000:c1:00.0", Link: "30"}]; got.UUID == "" {
		t.Errorf("no GPU is at the switch's port: %v", inv.ByPort)
	}
	if written.Mode().Perm() != 0o644 {
		t.Errorf("the file's mode is %s", written.Mode())
	}

	// The driver is not asked again before it is due, and nothing is written twice.
	n.writeFile("sim", "fail 9\n")
	if _, again := n.poll(); !os.SameFile(written, again) {
		t.Error("the same was written again")
	}
	n.writeFile("sim", "driver 570.1\n"+first+"\n"+second+"\n")
	n.clock.Step(n.Refresh)
	if _, again := n.poll(); !os.SameFile(written, again) {
		t.Error("the same was written again after it was asked for")
	}

	// A GPU is lost: it keeps its name. After a reload of the driver the file is written at
	// once.
	n.writeFile("sim", "driver 575.2\n"+first+" lost\n"+second+"\n")
	n.writeFile("proc/version", "575.2")
	if inv, _ := n.poll(); inv.Driver != "575.2" || inv.ByPCI["0000:3b:00.0"].UUID != "GPU-aaaa" || len(inv.ByPCI) != 2 {
		t.Errorf("the file says %+v", inv)
	}
	// After a reboot it is not there.
	n.writeFile("boot_id", "boot-2")
	if inv, _ := n.poll(); len(inv.ByPCI) != 1 || inv.ByPCI["0000:5e:00.0"].UUID != "GPU-bbbb" {
		t.Errorf("the file says %+v", inv)
	}
	// A file that somebody broke is replaced.
	n.writeFile("state/gpu_metadata.json", "{")
	if inv, _ := n.poll(); len(inv.ByPCI) != 1 {
		t.Errorf("the file says %+v", inv)
	}
}

// TestDriverValuesAreWrittenUnchanged checks every key of the file.
func TestDriverValuesAreWrittenUnchanged(t *testing.T) {
	const whole = `"gpus": [
    {
      "gpu_id": 0,
      "uuid": "GPU-aaaa",
      "pci_address": "0000:3b:00.0",
      "serial_number": "111",
      "device_name": "NVIDIA_H100",
      "nvlinks": [
        {
          "link_id": 0,
          "remote_pci_address": "0000:c1:00.0",
          "remote_link_id": 30
        }
      ],
      "nvlink_link_count": 2,
      "nvlink_active_link_count": 1,
      "numa_node": 1,
      "slowdown_tlimit_c": -2
    }
  ],
  "nvswitches": [
    "0000:c1:00.0"
  ]
}
`
	const few = `"gpus": [
    {
      "gpu_id": 0,
      "uuid": "GPU-aaaa",
      "pci_address": "0000:3b:00.0",
      "serial_number": "111",
      "device_name": "NVIDIA_H100",
      "nvlinks": [],
      "nvlink_link_count": 2,
      "nvlink_active_link_count": 1,
      "numa_node": 1
    }
  ],
  "nvswitches": []
}
`
	for library, want := range map[string]string{"whole": whole, "few": few} {
		n := newNode(t, library)
		n.writeFile("sim", "driver 570.1\ngpu GPU-aaaa 00000000:3B:00.0 111 NVIDIA_H100 2 1 00000000:C1:00.0 -2\n")
		n.poll()
		data, err := os.ReadFile(n.Path)
		if err != nil {
			t.Fatal(err)
		}
		_, got, _ := strings.Cut(string(data), "\"gpus\"")
		if diff := cmp.Diff(want, "\"gpus\""+got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", library, diff)
		}
	}
}

// TestADriverThatFails leaves the file as it is; one that hangs holds nobody but
// the process that asked.
func TestADriverThatFails(t *testing.T) {
	n := newNode(t, "whole")
	n.writeFile("sim", "driver 570.1\n"+first+"\n")
	_, written := n.poll()
	n.clock.Step(n.Refresh)
	for text, want := range map[string]string{"fail 9\n": "initializing the driver library: error 9", "": "initializing"} {
		if text == "" {
			t.Setenv("NVML_SIM", n.path("none"))
		}
		n.writeFile("sim", text)
		if err := n.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gave %v", text, err)
		}
		t.Setenv("NVML_SIM", n.path("sim"))
	}
	n.writeFile("sim", "hang\n"+first+"\n")
	n.driver.Deadline = time.Second
	if err := n.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "no response within 1s") {
		t.Errorf("a driver that hangs gave %v", err)
	}
	n.driver.Deadline = time.Minute
	n.writeFile("sim", "driver 570.1\n"+first+"\n")
	testkit.Until(t, time.Minute, func() bool { return n.Poll(t.Context()) == nil }) // the process was killed
	info, err := os.Stat(n.Path)
	if err != nil || !os.SameFile(written, info) {
		t.Errorf("the file was written: %v", err)
	}
}

func TestNoLibrary(t *testing.T) {
	n := newNode(t, "whole")
	n.driver.Library = n.path("none.so")
	if err := n.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "none.so cannot be loaded") {
		t.Errorf("a driver without a library gave %v", err)
	}
	if ok, _ := n.Rounds().Ready(); ok {
		t.Error("ready without a look")
	}
}
