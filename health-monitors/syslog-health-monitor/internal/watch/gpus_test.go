package watch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pciDevice is a device in sysfs: the way to it, its vendor and its class.
type pciDevice struct{ path, vendor, class string }

// Devices of a node: two GPUs behind ports, one of them behind a switch too, and a disk.
var pciDevices = []pciDevice{
	{"pci0000:3a/0000:3a:01.0", "0x8086", "0x060400"},
	{"pci0000:3a/0000:3a:01.0/0000:3b:00.0", "0x10de", "0x030200"},
	{"pci0000:5a/0000:5a:01.0", "0x8086", "0x060400"},
	{"pci0000:5a/0000:5a:01.0/0000:5c:01.0", "0x1000", "0x060400"},
	{"pci0000:5a/0000:5a:01.0/0000:5c:01.0/0000:5d:00.0", "0x10de", "0x030000"},
	{"pci0000:5a/0000:5a:01.0/0000:5c:02.0", "0x1000", "0x060400"},
	{"pci0000:5a/0000:5a:01.0/0000:5c:02.0/0000:5e:00.0", "0x10de", "0x068000"}, // an NVSwitch
	{"pci0000:60/0000:60:01.0", "0x8086", "0x060400"},
	{"pci0000:60/0000:60:01.0/0000:61:00.0", "0x144d", "0x010802"},
}

// sysfs writes devices into a folder as sysfs shows them.
func sysfs(t *testing.T, devices []pciDevice) string {
	t.Helper()
	root := t.TempDir()
	links := filepath.Join(root, "bus/pci/devices")
	if err := os.MkdirAll(links, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		dir := filepath.Join(root, "devices", d.path)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"vendor": d.vendor, "class": d.class} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(dir, filepath.Join(links, filepath.Base(d.path))); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func placesOfGPUs(t *testing.T) *GPUPlaces {
	t.Helper()
	p := NewGPUPlaces(sysfs(t, pciDevices))
	p.Refresh()
	return p
}

// TestGPUsAreFoundBehindTheirBridges: also after the kernel has taken them out of sysfs.
func TestGPUsAreFoundBehindTheirBridges(t *testing.T) {
	root := sysfs(t, pciDevices)
	p := NewGPUPlaces(root)
	p.Refresh()
	for range 2 {
		for address, want := range map[string][]string{
			"0000:3b:00.0": {"0000:3b:00.0"}, "0000:3a:01.0": {"0000:3b:00.0"}, "0000:5c:01.0": {"0000:5d:00.0"},
			"0000:5a:01.0": {"0000:5d:00.0"}, "0000:5c:02.0": nil, "0000:60:01.0": nil, "0000:61:00.0": nil, "": nil,
		} {
			if diff := cmp.Diff(want, p.Behind(address)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", address, diff)
			}
		}
		if err := os.RemoveAll(filepath.Join(root, "bus")); err != nil {
			t.Fatal(err)
		}
		p.Refresh()
	}
	var none *GPUPlaces
	if none.Refresh(); none.Behind("0000:3b:00.0") != nil {
		t.Error("without sysfs a GPU is known")
	}
}

// TestACardIsKnownByItsInterface: by the interface's name where sysfs does not show it.
func TestACardIsKnownByItsInterface(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "class/net/ens1f0np0/device/infiniband/mlx5_0"), 0o700); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.policy.Interface = InterfaceNames(root)
	n.policy.NIC = func(string) string { return "mlx5_7" }
	n.log("NETDEV WATCHDOG: ens1f0np0 (mlx5_core): transmit queue 12 timed out",
		"NETDEV WATCHDOG: ens9 (mlx5_core): transmit queue 12 timed out",
		"mlx5_core 0000:c1:00.0 ens7: NETDEV WATCHDOG: CPU: 3: transmit queue 5 timed out 5000 ms")
	n.start()
	n.passes()
	n.expectFull("SysLogsNICDriverError | netdev_watchdog | NONE | NIC=mlx5_0", "SysLogsNICDriverError | netdev_watchdog | NONE | NIC=ens9",
		"SysLogsNICDriverError | netdev_watchdog | NONE | NIC=mlx5_7")
	if got := InterfaceNames(root)("../net/ens1f0np0"); got != "" {
		t.Errorf("a path names the card %s", got)
	}
}

// TestAGPUIsKnownByTheMetadataOrTheDriver: without sysfs; an address that nothing lists is
// that of any device.
func TestAGPUIsKnownByTheMetadataOrTheDriver(t *testing.T) {
	n := newNode(t)
	n.log("NVRM: GPU at PCI:0000:5e:00: "+gpu1,
		"vfio-pci 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
		"vfio-pci 0000:5e:00.0: Unable to change power state from D3cold to D0, device inaccessible",
		"vfio-pci 0000:6e:00.0: Unable to change power state from D3cold to D0, device inaccessible",
		"pcieport 0000:3b:00.0: pciehp: Slot(22): Link Down")
	n.start()
	n.passes()
	n.expectFull("SysLogsGPUFallenOff | GPU_FALLEN_OFF_BUS | RESTART_BM | PCI=0000:3b:00 GPU_UUID="+gpu0+" GPU=0",
		"SysLogsGPUFallenOff | GPU_FALLEN_OFF_BUS | RESTART_BM | PCI=0000:5e:00 GPU_UUID="+gpu1)
}

// TestTheGPUOfAFailedGSPIsRememberedForAFewLines: then, and after a reboot, a message
// without an address is about any GPU.
func TestTheGPUOfAFailedGSPIsRememberedForAFewLines(t *testing.T) {
	none := failedGSP{}
	one := none.fails("a")
	for name, c := range map[string]struct {
		got  failedGSP
		want string
	}{
		"none":               {none, ""},
		"at once":            {one, "a"},
		"the last line":      {one.pass(gspLines - 1), "a"},
		"too late":           {one.pass(gspLines), ""},
		"again":              {one.pass(100).fails("a").pass(100), "a"},
		"two GPUs":           {one.pass(1).fails("b"), ""},
		"the first again":    {one.fails("b").fails("a"), ""},
		"long after another": {one.pass(gspLines).fails("b"), "b"},
	} {
		if c.got.PCI != c.want {
			t.Errorf("%s: %q, want %q", name, c.got.PCI, c.want)
		}
	}
	s := newState()
	s.GSP = one
	if s.turn("boot-2", 1); s.GSP != none {
		t.Errorf("after a reboot %+v", s.GSP)
	}
}
