package watch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/pattern"
)

// gpuDriver is the driver that holds GPUs and nothing else.
const gpuDriver = "nvidia"

// metadataDriver is the driver that holds the device which a match names.
const metadataDriver = "driver"

// GPUPlaces knows at which PCI addresses GPUs are, and behind which bridges, from sysfs.
// A GPU that is gone stays known: the kernel takes it out of sysfs when it is lost.
type GPUPlaces struct {
	root   string
	behind map[string][]string
}

// NewGPUPlaces prepares to read sysfs; Refresh reads it.
func NewGPUPlaces(sysfs string) *GPUPlaces {
	return &GPUPlaces{root: sysfs, behind: map[string][]string{}}
}

// pciAddress is a device's address in sysfs.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Refresh adds the GPUs that are there now. What cannot be read is not there.
func (p *GPUPlaces) Refresh() {
	if p == nil {
		return
	}
	devices := filepath.Join(p.root, "bus/pci/devices")
	entries, err := os.ReadDir(devices)
	if err != nil {
		return
	}
	for _, e := range entries {
		device := filepath.Join(devices, e.Name())
		if !isGPU(device) {
			continue
		}
		path, err := filepath.EvalSymlinks(device)
		if err != nil {
			continue
		}
		for place := range strings.SplitSeq(path, string(filepath.Separator)) {
			if pciAddress.MatchString(place) && !slices.Contains(p.behind[place], e.Name()) {
				p.behind[place] = append(p.behind[place], e.Name())
			}
		}
	}
}

// isGPU reports whether a device is a display or 3D controller of NVIDIA's.
func isGPU(device string) bool {
	vendor, err := os.ReadFile(filepath.Join(device, "vendor"))
	if err != nil || strings.TrimSpace(string(vendor)) != "0x10de" {
		return false
	}
	class, err := os.ReadFile(filepath.Join(device, "class"))
	return err == nil && (strings.HasPrefix(string(class), "0x0300") || strings.HasPrefix(string(class), "0x0302"))
}

// Behind lists the addresses of the GPUs at an address, or behind the bridge there.
func (p *GPUPlaces) Behind(pci string) []string {
	if p == nil {
		return nil
	}
	return p.behind[pci]
}

// matchGPUs turns the match of a rule that holds for GPUs alone into one for each GPU that
// it is about: none where nothing shows that the device is a GPU.
func (b *batch) matchGPUs(f pattern.Match) (out []pattern.Match) {
	for i, e := range f.Entities {
		if e[0] != pattern.GroupPCI && e[0] != pattern.GroupPort {
			continue
		}
		for _, gpu := range b.gpusAt(e, f.Metadata[metadataDriver]) {
			one := f
			one.Entities = slices.Clone(f.Entities)
			one.Entities[i] = [2]string{entityPCI, gpu}
			out = append(out, one)
		}
	}
	return out
}

// gpusAt lists the GPUs at the address of a device or bridge.
func (b *batch) gpusAt(e [2]string, driver string) []string {
	address := location.Address(e[1])
	_, listed := b.m.Devices.Inventory().ByPCI[address]
	_, owned := b.s.Owners[address]
	if e[0] == pattern.GroupPCI && (driver == gpuDriver || listed || owned) {
		return []string{e[1]}
	}
	return b.m.Policy.GPUs.Behind(e[1])
}
