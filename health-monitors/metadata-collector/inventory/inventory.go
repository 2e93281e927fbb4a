// Package inventory is the content of a node's GPU metadata file: what the driver reports
// about the GPUs, and when that makes another file. It does no I/O and reads no clock.
package inventory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Version is that of the file's shape.
const Version = "1.0"

// Document is the file. Its readers are the node's monitors.
type Document struct {
	Version   string    `json:"version"`
	Timestamp time.Time `json:"timestamp"`
	NodeName  string    `json:"node_name"`
	// BootID is the boot under which the GPUs were seen.
	BootID        string   `json:"boot_id"`
	DriverVersion string   `json:"driver_version"`
	ChassisSerial string   `json:"chassis_serial,omitempty"`
	GPUs          []GPU    `json:"gpus"`
	NVSwitches    []string `json:"nvswitches"`
}

// GPU is one GPU.
type GPU struct {
	// ID is the driver's index, or NoID.
	ID   int    `json:"gpu_id"`
	UUID string `json:"uuid"`
	// PCIAddress is with domain and function, "0000:3b:00.0".
	PCIAddress   string `json:"pci_address"`
	SerialNumber string `json:"serial_number"`
	DeviceName   string `json:"device_name"`
	// NVLinks are the active links whose other end is known.
	NVLinks []NVLink `json:"nvlinks"`
	// LinkCount and ActiveLinkCount are nil where the driver does not report them.
	LinkCount       *int `json:"nvlink_link_count,omitempty"`
	ActiveLinkCount *int `json:"nvlink_active_link_count,omitempty"`
	// NUMANode is -1 where the machine has none.
	NUMANode int `json:"numa_node"`
	// SlowdownTLimit is the margin, in degrees Celsius, at which the GPU slows down.
	SlowdownTLimit *int `json:"slowdown_tlimit_c,omitempty"`
}

// NoID is the index of a GPU that the driver does not show any more while another
// GPU has its index.
const NoID = -1

// NVLink is one link of a GPU.
type NVLink struct {
	ID               int    `json:"link_id"`
	RemotePCIAddress string `json:"remote_pci_address"`
	RemoteID         int    `json:"remote_link_id"`
}

// Facts are what the driver reported at one look.
type Facts struct {
	Driver  string
	Chassis string
	GPUs    []GPU
	// Switches are the PCI addresses of NVSwitches at the other ends of links.
	Switches []string
	// Partial means that something of a GPU could not be read, for example because it is
	// lost.
	Partial bool
}

// Reason is why the file is written again, or is not.
type Reason string

// Reasons of a decision.
const (
	// First: there was no GPU metadata file that could be read, so it is written. Action: none.
	First Reason = "first"
	// Rebooted: the file is of an earlier boot, so it is written again. Action: none.
	Rebooted Reason = "rebooted"
	// Driver: the version of the driver differs from the file, so the file is written again. Action: none.
	Driver Reason = "driver"
	// GPUs: the index, UUID or PCI address of a GPU differs from the file, so the file is written again. Action:
	// none if GPUs were added or replaced. Otherwise run `nvidia-smi -L` on the node and find out which GPU is
	// missing.
	GPUs Reason = "gpus"
	// Links: an NVLink or NVSwitch differs from the file, so the file is written again. Action: none.
	Links Reason = "links"
	// Other: something else differs from the file, for example a serial number or a threshold, so the file is
	// written again. Action: none.
	Other Reason = "other"
	// Same: nothing differs from the file, so it is not written. Action: none.
	Same Reason = "unchanged"
	// NoGPU: the driver shows no GPU since the reboot and the file of the earlier boot has some, so the file stays
	// as it is. Action: none while the driver starts. If it lasts, check the driver (`nvidia-smi` on the node).
	NoGPU Reason = "no-gpu"
)

// Next makes the file of what was seen: write is false if the present one (nil: there is
// none) has the same content. A GPU that the driver does not show any more stays in the
// file for the rest of the boot: it is then that its faults need its name.
func Next(present *Document, seen Facts, node, boot string, now time.Time) (next Document, write bool, why Reason) {
	next = Document{
		Version: Version, Timestamp: now.UTC(), NodeName: node, BootID: boot, DriverVersion: seen.Driver, ChassisSerial: seen.Chassis,
		GPUs: slices.Clone(seen.GPUs), NVSwitches: slices.Clone(seen.Switches),
	}
	if present == nil {
		return tidy(next), true, First
	}
	if present.BootID == boot {
		next.keep(*present)
	} else if len(seen.GPUs) == 0 {
		return *present, false, NoGPU // a driver that is not up yet; what the last boot had is better than nothing
	}
	next = tidy(next)
	why = differ(*present, next)
	return next, why != Same, why
}

// keep adds what the present file has of this boot and the driver does not show.
func (d *Document) keep(present Document) {
	for _, old := range present.GPUs {
		i := slices.IndexFunc(d.GPUs, func(g GPU) bool { return g.PCIAddress == old.PCIAddress })
		switch {
		case i < 0 && !slices.ContainsFunc(d.GPUs, func(g GPU) bool { return g.UUID == old.UUID }):
			if slices.ContainsFunc(d.GPUs, func(g GPU) bool { return g.ID == old.ID }) {
				old.ID = NoID // a driver that was loaded without it renumbers the others
			}
			d.GPUs = append(d.GPUs, old)
		case i >= 0 && d.GPUs[i].UUID == "":
			lost := d.GPUs[i].ID
			d.GPUs[i] = old
			d.GPUs[i].ID = lost
		}
	}
	if d.DriverVersion == "" {
		d.DriverVersion = present.DriverVersion
	}
	if d.ChassisSerial == "" {
		d.ChassisSerial = present.ChassisSerial
	}
	for _, s := range present.NVSwitches {
		if !slices.Contains(d.NVSwitches, s) {
			d.NVSwitches = append(d.NVSwitches, s)
		}
	}
}

// tidy takes out what has no identity, and orders the rest.
func tidy(d Document) Document {
	d.GPUs = slices.DeleteFunc(d.GPUs, func(g GPU) bool { return g.UUID == "" || g.PCIAddress == "" })
	for i := range d.GPUs {
		if d.GPUs[i].NVLinks == nil {
			d.GPUs[i].NVLinks = []NVLink{}
		}
	}
	slices.SortStableFunc(d.GPUs, func(a, b GPU) int { return strings.Compare(a.PCIAddress, b.PCIAddress) })
	slices.Sort(d.NVSwitches)
	d.NVSwitches = slices.Compact(d.NVSwitches)
	if d.NVSwitches == nil {
		d.NVSwitches = []string{}
	}
	if d.GPUs == nil {
		d.GPUs = []GPU{}
	}
	return d
}

func differ(a, b Document) Reason {
	identity := func(d Document) (out []string) {
		for _, g := range d.GPUs {
			out = append(out, fmt.Sprint(g.ID, g.UUID, g.PCIAddress))
		}
		return out
	}
	links := func(d Document) (out []any) {
		for _, g := range d.GPUs {
			out = append(out, g.NVLinks, g.LinkCount, g.ActiveLinkCount)
		}
		return append(out, d.NVSwitches)
	}
	switch {
	case a.BootID != b.BootID:
		return Rebooted
	case a.DriverVersion != b.DriverVersion:
		return Driver
	case !slices.Equal(identity(a), identity(b)):
		return GPUs
	case !reflect.DeepEqual(links(a), links(b)):
		return Links
	}
	b.Timestamp = a.Timestamp
	if reflect.DeepEqual(a, b) {
		return Same
	}
	return Other
}

// Encode is the file's content.
func (d Document) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding GPU metadata: %w", err)
	}
	return append(data, '\n'), nil
}

// Decode reads the file's content.
func Decode(data []byte) (Document, error) {
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return Document{}, fmt.Errorf("decoding GPU metadata: %w", err)
	}
	return tidy(d), nil
}

// Address writes a PCI address as sysfs does: "00000000:3B:00.0" is
// "0000:3b:00.0".
func Address(s string) string {
	s = strings.ToLower(s)
	domain, rest, ok := strings.Cut(s, ":")
	if !ok || !strings.Contains(rest, ":") {
		return s
	}
	domain = strings.TrimLeft(domain, "0")
	return strings.Repeat("0", max(4-len(domain), 0)) + domain + ":" + rest
}

// Pod names one pod.
type Pod struct{ Namespace, Name string }

// Allocation is what the kubelet reports about the node's running pods: the ids of the GPUs
// of each, by resource. A pod without GPUs is listed with none.
type Allocation map[Pod]map[string][]string

// Give adds ids of a resource to a pod; those of other resources than GPUs are
// left out. The order in which they come means nothing: the kubelet keeps them as a
// set and lists them in another order each time.
func (a Allocation) Give(p Pod, resource string, ids []string) {
	if a[p] == nil {
		a[p] = map[string][]string{}
	}
	if eviction.IsGPU(resource) && len(ids) > 0 {
		a[p][resource] = append(a[p][resource], ids...)
		slices.Sort(a[p][resource])
	}
}

// Marked is a pod as the API server has it.
type Marked struct {
	Pod
	// UID distinguishes it from others of its name.
	UID string
	// Annotation is that of the devices, empty if it has none.
	Annotation string
}

// Change is what one pod's annotation must become.
type Change struct {
	Pod
	UID string
	// Annotation is the new value; empty takes it away.
	Annotation string
}

// Changes lists what must change, by namespace and name; all is false if a pod
// that holds GPUs is not among the pods yet. Of a pod that the kubelet does not
// list nothing is known: what it has stays.
func Changes(held Allocation, pods []Marked) (changes []Change, all bool) {
	there := map[Pod]bool{}
	for _, p := range pods {
		there[p.Pod] = true
		given, listed := held[p.Pod]
		if want := nodemark.EncodeDevices(given); listed && want != p.Annotation {
			changes = append(changes, Change{p.Pod, p.UID, want})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for p, given := range held {
		if len(given) > 0 && !there[p] {
			return changes, false
		}
	}
	return changes, true
}
