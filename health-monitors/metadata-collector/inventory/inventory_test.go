package inventory

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func gpu(id int, uuid, pci string) GPU { return GPU{ID: id, UUID: uuid, PCIAddress: pci, NUMANode: -1} }

func TestNext(t *testing.T) {
	two := Facts{Driver: "570", GPUs: []GPU{gpu(0, "GPU-a", "0000:3b:00.0"), gpu(1, "GPU-b", "0000:5e:00.0")}, Switches: []string{"0000:c1:00.0"}}
	present, write, why := Next(nil, two, "n1", "boot-1", day)
	if !write || why != First {
		t.Fatalf("the first file: write %t, %s", write, why)
	}
	active := 17
	linked := two
	linked.GPUs = []GPU{two.GPUs[0], two.GPUs[1]}
	linked.GPUs[0].ActiveLinkCount = &active
	named := two
	named.GPUs = []GPU{two.GPUs[0], two.GPUs[1]}
	named.GPUs[0].DeviceName = "H100"
	for _, c := range []struct {
		name  string
		seen  Facts
		boot  string
		write bool
		why   Reason
		uuids []string
	}{
		{"the same", two, "boot-1", false, Same, []string{"GPU-a", "GPU-b"}},
		{"another driver", Facts{Driver: "575", GPUs: two.GPUs, Switches: two.Switches}, "boot-1", true, Driver, []string{"GPU-a", "GPU-b"}},
		{"a GPU is lost", Facts{Driver: "570", GPUs: two.GPUs[1:]}, "boot-1", false, Same, []string{"GPU-a", "GPU-b"}},
		{"a GPU has no name", Facts{Driver: "570", GPUs: []GPU{gpu(0, "", "0000:3b:00.0"), two.GPUs[1]}}, "boot-1", false, Same, []string{"GPU-a", "GPU-b"}},
		{"all are lost, and the driver with them", Facts{}, "boot-1", false, Same, []string{"GPU-a", "GPU-b"}},
		{"one was replaced", Facts{Driver: "570", GPUs: []GPU{gpu(0, "GPU-c", "0000:3b:00.0"), two.GPUs[1]}}, "boot-1", true, GPUs, []string{"GPU-c", "GPU-b"}},
		{"one is lost and the other has its index", Facts{Driver: "570", GPUs: []GPU{gpu(0, "GPU-b", "0000:5e:00.0")}}, "boot-1", true, GPUs, []string{"GPU-a", "GPU-b"}},
		{"one moved", Facts{Driver: "570", GPUs: []GPU{gpu(0, "GPU-a", "0000:99:00.0"), two.GPUs[1]}}, "boot-1", true, GPUs, []string{"GPU-b", "GPU-a"}},
		{"a link was lost", linked, "boot-1", true, Links, []string{"GPU-a", "GPU-b"}},
		{"a GPU that has an address only", Facts{Driver: "570", GPUs: []GPU{two.GPUs[0], two.GPUs[1], gpu(2, "", "0000:99:00.0")}}, "boot-1", false, Same, []string{"GPU-a", "GPU-b"}},
		{"a GPU that has a name only", Facts{Driver: "570", GPUs: []GPU{two.GPUs[0], two.GPUs[1], gpu(2, "GPU-c", "")}}, "boot-1", false, Same, []string{"GPU-a", "GPU-b"}},
		{"a name", named, "boot-1", true, Other, []string{"GPU-a", "GPU-b"}},
		{"a reboot took one", Facts{Driver: "570", GPUs: two.GPUs[1:]}, "boot-2", true, Rebooted, []string{"GPU-b"}},
		{"a reboot, and no driver yet", Facts{}, "boot-2", false, NoGPU, []string{"GPU-a", "GPU-b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, write, why := Next(&present, c.seen, "n1", c.boot, day.Add(time.Hour))
			var uuids []string
			for _, g := range next.GPUs {
				uuids = append(uuids, g.UUID)
			}
			if diff := cmp.Diff(c.uuids, uuids); write != c.write || why != c.why || diff != "" {
				t.Errorf("write %t because %s, want %t because %s; GPUs (-want +got):\n%s", write, why, c.write, c.why, diff)
			}
		})
	}
}

// TestNoTwoHaveOneIndex: a GPU that is lost keeps its name, and not the index that
// another has got.
func TestNoTwoHaveOneIndex(t *testing.T) {
	both := Facts{GPUs: []GPU{gpu(0, "GPU-a", "0000:3b:00.0"), gpu(1, "GPU-b", "0000:5e:00.0")}}
	present, _, _ := Next(nil, both, "n1", "boot-1", day)
	one := Facts{GPUs: []GPU{gpu(0, "GPU-b", "0000:5e:00.0")}}
	next, _, _ := Next(&present, one, "n1", "boot-1", day)
	if next.GPUs[0].ID != NoID || next.GPUs[0].UUID != "GPU-a" || next.GPUs[1].ID != 0 {
		t.Errorf("the file says %+v", next.GPUs)
	}
	if _, write, why := Next(&next, one, "n1", "boot-1", day); write {
		t.Errorf("the same is written again: %s", why)
	}
	if next, _, _ = Next(&next, both, "n1", "boot-1", day); next.GPUs[0].ID != 0 || next.GPUs[1].ID != 1 {
		t.Errorf("when both are back the file says %+v", next.GPUs)
	}
}

// TestMissingDriverValuesAreKept: the driver's version and the chassis of this
// boot outlast a driver that is gone, and give way to what it reports.
func TestMissingDriverValuesAreKept(t *testing.T) {
	gpus := []GPU{gpu(0, "GPU-a", "0000:3b:00.0")}
	present, _, _ := Next(nil, Facts{Driver: "570", Chassis: "C1", GPUs: gpus}, "n1", "boot-1", day)
	for name, c := range map[string]struct {
		seen            Facts
		driver, chassis string
	}{
		"neither is told":     {Facts{GPUs: gpus}, "570", "C1"},
		"the chassis is not":  {Facts{Driver: "575", GPUs: gpus}, "575", "C1"},
		"the driver's is not": {Facts{Chassis: "C2", GPUs: gpus}, "570", "C2"},
		"both are told":       {Facts{Driver: "575", Chassis: "C2", GPUs: gpus}, "575", "C2"},
	} {
		t.Run(name, func(t *testing.T) {
			if next, _, _ := Next(&present, c.seen, "n1", "boot-1", day); next.DriverVersion != c.driver || next.ChassisSerial != c.chassis {
				t.Errorf("driver %q in chassis %q, want %q in %q", next.DriverVersion, next.ChassisSerial, c.driver, c.chassis)
			}
		})
	}
}

// TestUnrepresentableTime: an empty file would be worse than the present one.
func TestUnrepresentableTime(t *testing.T) {
	d, _, _ := Next(nil, Facts{}, "n1", "boot-1", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	if data, err := d.Encode(); err == nil || !strings.Contains(err.Error(), "encoding GPU metadata") || data != nil {
		t.Errorf("the year 10000 is written as %q, %v", data, err)
	}
}

// TestTheFileIsReadAsItWasWritten: what is read back equals what was seen, so that nothing
// is written twice.
func TestTheFileIsReadAsItWasWritten(t *testing.T) {
	links, margin := 18, -2
	seen := Facts{Driver: "570", Chassis: "C1", GPUs: []GPU{{
		ID: 3, UUID: "GPU-a", PCIAddress: "0000:3b:00.0", SerialNumber: "s", DeviceName: "NVIDIA H100", NUMANode: 1,
		NVLinks: []NVLink{{0, "0000:c1:00.0", 30}}, LinkCount: &links, ActiveLinkCount: &links, SlowdownTLimit: &margin,
	}}}
	d, _, _ := Next(nil, seen, "n1", "boot-1", day)
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "version": "1.0",
  "timestamp": "2026-01-02T03:04:05Z",
  "node_name": "n1",
  "boot_id": "boot-1",
  "driver_version": "570",
  "chassis_serial": "C1",
  "gpus": [
    {
      "gpu_id": 3,
      "uuid": "GPU-a",
      "pci_address": "0000:3b:00.0",
      "serial_number": "s",
      "device_name": "NVIDIA H100",
      "nvlinks": [
        {
          "link_id": 0,
          "remote_pci_address": "0000:c1:00.0",
          "remote_link_id": 30
        }
      ],
      "nvlink_link_count": 18,
      "nvlink_active_link_count": 18,
      "numa_node": 1,
      "slowdown_tlimit_c": -2
    }
  ],
  "nvswitches": []
}
`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	again, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, write, why := Next(&again, seen, "n1", "boot-1", day.Add(time.Hour)); write {
		t.Errorf("the same is written again: %s", why)
	}
	if _, err := Decode([]byte("{")); err == nil {
		t.Error("half a file was read")
	}
}

func TestAddress(t *testing.T) {
	for given, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "0000:3b:00.0": "0000:3b:00.0", "00010002:03:04.0": "10002:03:04.0", "3b:00.0": "3b:00.0", "": "",
	} {
		if got := Address(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}
