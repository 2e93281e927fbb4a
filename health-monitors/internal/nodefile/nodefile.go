// Package nodefile reads facts about a node from its files: the id of the running boot, and the
// GPU metadata file, which lists the GPU at each PCI address. A missing or broken metadata file
// degrades only the identity: lookups find nothing.
package nodefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxBytes bounds the file; a node's is a few KiB.
const maxBytes = 4 << 20

// GPU is one GPU of the node.
type GPU struct {
	UUID  string
	Index string
	// PCI is the normalised address.
	PCI string
	// Name is that of the product.
	Name string
	// Links is how many NVLinks the GPU has, ActiveLinks how many of them were up; nil
	// where the file does not list them.
	Links, ActiveLinks *int
	// SlowdownMargin is how many °C are left to the GPU's limit when it slows down; nil
	// where the file does not list it.
	SlowdownMargin *int
}

// Port is one port of an NVSwitch.
type Port struct {
	// PCI is the normalised address of the switch.
	PCI string
	// Link is the port's number, decimal.
	Link string
}

// Inventory is the content of one version of the file.
type Inventory struct {
	// Chassis is the chassis serial, empty when the file has none.
	Chassis string
	// Driver is the version of the GPU driver, empty when the file has none.
	Driver string
	// ByPCI holds the GPUs by normalised PCI address.
	ByPCI map[string]GPU
	// ByPort holds the GPUs by the port of the NVSwitch that they are linked to.
	ByPort map[Port]GPU
}

// ByUUID finds a GPU by its UUID.
func (i Inventory) ByUUID(uuid string) (GPU, bool) {
	for _, gpu := range i.ByPCI {
		if gpu.UUID == uuid {
			return gpu, true
		}
	}
	return GPU{}, false
}

// ByIndex finds a GPU by its index.
func (i Inventory) ByIndex(index string) (GPU, bool) {
	for _, gpu := range i.ByPCI {
		if gpu.Index == index {
			return gpu, true
		}
	}
	return GPU{}, false
}

// document is the file's shape; only what we use.
type document struct {
	ChassisSerial string `json:"chassis_serial"`
	DriverVersion string `json:"driver_version"`
	GPUs          []struct {
		ID      *int   `json:"gpu_id"`
		UUID    string `json:"uuid"`
		PCI     string `json:"pci_address"`
		Name    string `json:"device_name"`
		Links   *int   `json:"nvlink_link_count"`
		Active  *int   `json:"nvlink_active_link_count"`
		Margin  *int   `json:"slowdown_tlimit_c"`
		NVLinks []struct {
			PCI  string `json:"remote_pci_address"`
			Link *int   `json:"remote_link_id"`
		} `json:"nvlinks"`
	} `json:"gpus"`
}

// ParseGPUs reads the file's content; normalise makes PCI addresses comparable.
func ParseGPUs(data []byte, normalise func(string) string) (Inventory, error) {
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return Inventory{}, fmt.Errorf("decoding GPU metadata: %w", err)
	}
	inv := Inventory{Chassis: doc.ChassisSerial, Driver: doc.DriverVersion, ByPCI: map[string]GPU{}, ByPort: map[Port]GPU{}}
	for _, g := range doc.GPUs {
		if g.PCI == "" || g.UUID == "" {
			continue
		}
		gpu := GPU{
			UUID: g.UUID, PCI: normalise(g.PCI), Name: g.Name, Links: counted(g.Links), ActiveLinks: counted(g.Active), SlowdownMargin: g.Margin,
		}
		if g.ID != nil && *g.ID >= 0 {
			gpu.Index = strconv.Itoa(*g.ID)
		}
		inv.ByPCI[gpu.PCI] = gpu
		for _, l := range g.NVLinks {
			if l.PCI != "" && l.Link != nil {
				inv.ByPort[Port{normalise(l.PCI), strconv.Itoa(*l.Link)}] = gpu
			}
		}
	}
	return inv, nil
}

// counted is a number of links; one that cannot be is not known.
func counted(n *int) *int {
	if n == nil || *n < 0 {
		return nil
	}
	return n
}

// GPUFile follows the metadata file.
type GPUFile struct {
	path      string
	normalise func(string) string
	latest    version
	inventory Inventory
	err       error
}

// version identifies the content of the file without reading it.
type version struct {
	size    int64
	changed time.Time
}

// FollowGPUs prepares to read the file; Refresh reads it.
func FollowGPUs(path string, normalise func(string) string) *GPUFile {
	return &GPUFile{path: path, normalise: normalise, latest: version{size: -1}}
}

// Refresh reads the file again if it changed; changed is true if it did, or if its state
// (readable, missing, broken) did. With an error the inventory is the last one that could
// be read.
func (f *GPUFile) Refresh() (changed bool, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		changed = f.err == nil
		f.latest, f.err = version{size: -1}, fmt.Errorf("reading GPU metadata: %w", err)
		return changed, f.err
	}
	now := version{info.Size(), info.ModTime()}
	if now == f.latest {
		return false, f.err
	}
	f.latest = now
	inv, err := f.read()
	if f.err = err; err == nil {
		f.inventory = inv
	}
	return true, err
}

func (f *GPUFile) read() (Inventory, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return Inventory{}, fmt.Errorf("opening GPU metadata: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBytes))
	if err != nil {
		return Inventory{}, fmt.Errorf("reading GPU metadata: %w", err)
	}
	return ParseGPUs(data, f.normalise)
}

// Inventory returns the content of the file that was read last.
func (f *GPUFile) Inventory() Inventory { return f.inventory }

// maxBootID bounds a boot id; the kernel's has 36 characters.
const maxBootID = 128

// BootID reads boot ids from a file, such as the kernel's /proc/sys/kernel/random/boot_id.
// An empty or odd file is an error: it does not identify the boot.
func BootID(path string) func() (string, error) {
	return func() (string, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		id := strings.TrimSpace(string(data))
		switch {
		case id == "":
			return "", errors.New("the file is empty")
		case len(id) > maxBootID, strings.ContainsFunc(id, odd):
			return "", fmt.Errorf("the file does not contain a boot ID: %.40q", id)
		}
		return id, nil
	}
}

// OwnBootID returns a function that returns the first boot id that read finds, the one of
// this process: what the process sees is of that boot, even where a simulated machine has
// another one now. The function is for one goroutine.
func OwnBootID(read func() (string, error)) func() (string, error) {
	var known string
	return func() (string, error) {
		if known != "" {
			return known, nil
		}
		id, err := read()
		known = id
		return id, err
	}
}

func odd(r rune) bool { return r <= ' ' || r > '~' }
