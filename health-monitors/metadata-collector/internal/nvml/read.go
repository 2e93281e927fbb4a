//go:build cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/inventory"
)

// Missing is nil: the library is looked for when it is read.
func Missing() error { return nil }

// session is one look through an initialised library.
type session struct {
	lib   nvml.Interface
	has   map[string]bool
	facts inventory.Facts
}

// Read asks the driver for every GPU. path is that of the library, empty for
// libnvidia-ml.so.1. What a GPU does not report is left out and makes the facts
// partial; that GPUs cannot be counted is an error.
func Read(path string) (inventory.Facts, error) {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	s := &session{lib: nvml.New(options...), has: map[string]bool{}}
	if ret := s.lib.Init(); ret == nvml.ERROR_LIBRARY_NOT_FOUND {
		return s.facts, fmt.Errorf("loading the driver library: %s cannot be loaded", or(path, "libnvidia-ml.so.1"))
	} else if ret != nvml.SUCCESS {
		return s.facts, fmt.Errorf("initializing the driver library: error %d", ret)
	}
	err := s.read()
	if s.can("nvmlShutdown") {
		_ = s.lib.Shutdown() // the process ends
	}
	return s.facts, err
}

// can reports whether the library has a function: to call one that it has not ends
// the process.
func (s *session) can(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if _, asked := s.has[name]; !asked {
			s.has[name] = s.lib.Extensions().LookupSymbol(name) == nil
		}
		return s.has[name]
	})
}

func (s *session) read() error {
	if !s.can("nvmlDeviceGetCount", "nvmlDeviceGetCount_v2") || !s.can("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2") {
		return errors.New("listing GPUs: the driver library does not support it")
	}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("counting GPUs: error %d", ret)
	}
	if s.can("nvmlSystemGetDriverVersion") {
		if version, ret := s.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			s.facts.Driver = version
		}
	}
	for i := range count {
		device, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			s.facts.Partial = true // lost; the file keeps what it knows of it
			continue
		}
		s.gpu(i, device)
	}
	return nil
}

// gpu reads one GPU.
func (s *session) gpu(index int, device nvml.Device) {
	g := inventory.GPU{ID: index, NVLinks: []inventory.NVLink{}, NUMANode: -1}
	if s.can("nvmlDeviceGetUUID") {
		g.UUID, _ = optional(device.GetUUID)
	}
	if s.can("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3") {
		if pci, ok := optional(device.GetPciInfo); ok {
			g.PCIAddress = address(pci)
		}
	}
	if s.can("nvmlDeviceGetSerial") {
		g.SerialNumber, _ = optional(device.GetSerial)
	}
	if s.can("nvmlDeviceGetName") {
		g.DeviceName, _ = optional(device.GetName)
	}
	if s.can("nvmlDeviceGetPlatformInfo") && s.facts.Chassis == "" {
		if p, ok := optional(device.GetPlatformInfo); ok {
			s.facts.Chassis = text(p.ChassisSerialNumber[:])
		}
	}
	if v, ok := s.field(device, nvml.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, 0); ok {
		g.SlowdownTLimit = &v
	}
	s.links(&g, device)
	s.facts.Partial = s.facts.Partial || g.UUID == "" || g.PCIAddress == ""
	s.facts.GPUs = append(s.facts.GPUs, g)
}

// links counts the links of a GPU and finds their other ends. A GPU without NVLink has
// counts of 0; one whose links cannot be queried has no counts.
func (s *session) links(g *inventory.GPU, device nvml.Device) {
	if !s.can("nvmlDeviceGetNvLinkState") {
		return
	}
	all, active := 0, 0
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := device.GetNvLinkState(link)
		switch {
		case ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT:
			continue // this GPU has no such link
		case ret != nvml.SUCCESS:
			s.facts.Partial = true
			return
		}
		all++
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		active++
		if end, ok := s.remote(device, link); ok {
			g.NVLinks = append(g.NVLinks, end)
		}
	}
	g.LinkCount, g.ActiveLinkCount = &all, &active
}

// remote is the other end of an active link.
func (s *session) remote(device nvml.Device, link int) (inventory.NVLink, bool) {
	if !s.can("nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return inventory.NVLink{}, false
	}
	pci, ret := device.GetNvLinkRemotePciInfo(link)
	if ret != nvml.SUCCESS {
		return inventory.NVLink{}, false
	}
	number, ok := s.field(device, nvml.FI_DEV_NVLINK_REMOTE_NVLINK_ID, link)
	if !ok {
		return inventory.NVLink{}, false
	}
	end := inventory.NVLink{ID: link, RemotePCIAddress: address(pci), RemoteID: number}
	if s.can("nvmlDeviceGetNvLinkRemoteDeviceType") {
		kind, ret := device.GetNvLinkRemoteDeviceType(link)
		if ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH && !slices.Contains(s.facts.Switches, end.RemotePCIAddress) {
			s.facts.Switches = append(s.facts.Switches, end.RemotePCIAddress)
		}
	}
	return end, true
}

// field reads a field of whole numbers.
func (s *session) field(device nvml.Device, id uint32, scope int) (int, bool) {
	if !s.can("nvmlDeviceGetFieldValues") {
		return 0, false
	}
	values := []nvml.FieldValue{{FieldId: id, ScopeId: uint32(scope)}}
	if ret := device.GetFieldValues(values); ret != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	raw := values[0].Value[:]
	switch nvml.ValueType(values[0].ValueType) {
	case nvml.VALUE_TYPE_SIGNED_INT:
		return int(int32(binary.NativeEndian.Uint32(raw))), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return int(binary.NativeEndian.Uint32(raw)), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return int(binary.NativeEndian.Uint64(raw)), true
	}
	return 0, false
}

// optional is a value that the driver gave.
func optional[T any](ask func() (T, nvml.Return)) (T, bool) {
	value, ret := ask()
	if ret != nvml.SUCCESS {
		var none T
		return none, false
	}
	return value, true
}

func address(pci nvml.PciInfo) string { return inventory.Address(text(pci.BusId[:])) }

func text(raw []uint8) string {
	s, _, _ := strings.Cut(string(raw), "\x00")
	return strings.ToValidUTF8(s, "")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
