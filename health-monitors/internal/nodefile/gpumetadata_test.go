package nodefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	a := GPU{UUID: "GPU-a", Index: "0", PCI: "0000:3b:00.0", Name: "H100", Links: new(18), ActiveLinks: new(0), SlowdownMargin: new(2)}
	for _, c := range []struct {
		name, data string
		want       Inventory
	}{
		{"whole", `{"version":"1.0","driver_version":"570","chassis_serial":"C1","nvswitches":["a"],"gpus":[
			{"gpu_id":0,"uuid":"GPU-a","pci_address":"0000:3B:00.0","device_name":"H100","nvlink_link_count":18,"nvlink_active_link_count":0,"slowdown_tlimit_c":2,"nvlinks":[
				{"link_id":0,"remote_pci_address":"0000:C1:00.0","remote_link_id":46},{"link_id":1,"remote_pci_address":"","remote_link_id":1},
				{"link_id":2,"remote_pci_address":"0000:c1:00.0"}]},
			{"gpu_id":7,"uuid":"GPU-b","nvlink_link_count":-1,"pci_address":"0000:5E:00.0"}]}`,
			Inventory{
				Chassis: "C1", Driver: "570", ByPCI: map[string]GPU{"0000:3b:00.0": a, "0000:5e:00.0": {UUID: "GPU-b", Index: "7", PCI: "0000:5e:00.0"}},
				ByPort: map[Port]GPU{{"0000:c1:00.0", "46"}: a},
			}},
		{"GPUs without a name or a place are left out", `{"gpus":[{"gpu_id":0,"uuid":"GPU-a"},{"pci_address":"x"},{"uuid":"GPU-c","pci_address":"y"}]}`,
			Inventory{ByPCI: map[string]GPU{"y": {UUID: "GPU-c", PCI: "y"}}, ByPort: map[Port]GPU{}}},
		{"empty", `{}`, Inventory{ByPCI: map[string]GPU{}, ByPort: map[Port]GPU{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseGPUs([]byte(c.data), strings.ToLower)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("error %v, inventory (-want +got):\n%s", err, diff)
			}
		})
	}
	for _, data := range []string{"", "{", `[]`, `{"gpus":{}}`, `{"gpus":[{"gpu_id":"zero"}]}`} {
		if inv, err := ParseGPUs([]byte(data), strings.ToLower); err == nil {
			t.Errorf("%q was read as %+v", data, inv)
		}
	}
}

func TestFileReportsEachChangeOnceAndKeepsTheLastInventory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu_metadata.json")
	f := FollowGPUs(path, strings.ToLower)
	at := time.Unix(1_800_000_000, 0)
	for i, step := range []struct {
		content string // "" removes the file
		bad     bool
		gpus    int
	}{
		{"", true, 0},
		{`{"gpus":[{"uuid":"a","pci_address":"1"}]}`, false, 1},
		{`{"gpus":[`, true, 1},
		{`{"gpus":[{"uuid":"a","pci_address":"1"},{"uuid":"b","pci_address":"2"}]}`, false, 2},
		{"", true, 2},
		{`{"gpus":[]}`, false, 0},
	} {
		if step.content == "" {
			_ = os.Remove(path)
		} else if err := os.WriteFile(path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		} else if err := os.Chtimes(path, at, at.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		for look := range 2 {
			changed, err := f.Refresh()
			if changed != (look == 0) || (err != nil) != step.bad || len(f.Inventory().ByPCI) != step.gpus {
				t.Errorf("step %d, look %d: changed %t, error %v, inventory %+v", i, look, changed, err, f.Inventory())
			}
		}
	}
}

func TestByIndex(t *testing.T) {
	inv := Inventory{ByPCI: map[string]GPU{"a": {Index: "0", PCI: "a"}, "b": {Index: "1", PCI: "b"}}}
	if gpu, ok := inv.ByIndex("1"); !ok || gpu.PCI != "b" {
		t.Errorf("found %+v, %t", gpu, ok)
	}
	if gpu, ok := inv.ByIndex("2"); ok {
		t.Errorf("found %+v", gpu)
	}
}

func TestByUUID(t *testing.T) {
	inv := Inventory{ByPCI: map[string]GPU{"a": {UUID: "GPU-a", PCI: "a"}, "b": {UUID: "GPU-b", PCI: "b"}}}
	if gpu, ok := inv.ByUUID("GPU-b"); !ok || gpu.PCI != "b" {
		t.Errorf("found %+v, %t", gpu, ok)
	}
	if gpu, ok := inv.ByUUID("GPU-c"); ok {
		t.Errorf("found %+v", gpu)
	}
}
