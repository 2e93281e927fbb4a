package reading

// AllSystems is the system of the XIDs that count whatever is watched.
const AllSystems uint32 = 0xffffffff

// systems are the health systems' names of checks, by their bits (DCGM's
// dcgmHealthSystems_t; the names are the earlier NVSentinel's).
var systems = map[uint32]string{
	0x1: "GpuPcieWatch", 0x2: "GpuNvlinkWatch", 0x4: "GpuPmuWatch", 0x8: "GpuMcuWatch", 0x10: "GpuMemWatch", 0x20: "GpuSmWatch",
	0x40: "GpuInforomWatch", 0x80: "GpuThermalWatch", 0x100: "GpuPowerWatch", 0x200: "GpuDriverWatch",
	0x400: "GpuNvswitchNonfatalWatch", 0x800: "GpuNvswitchFatalWatch", 0x1000: "GpuConnectxWatch", 0x2000: "GpuImexWatch",
	AllSystems: "GpuAllWatch",
}

// Check is the name of the check of a health system. An incident of a system that
// is not known is told under UnknownCheck, and never dropped.
func Check(system uint32) (name string, known bool) {
	if name, known = systems[system]; known {
		return name, true
	}
	return UnknownCheck, false
}

// UnknownCheck is the check of systems that came after this table.
const UnknownCheck = "GpuUnknownWatch"

// Checks are the names of all checks of health systems.
func Checks() []string {
	out := []string{UnknownCheck}
	for _, name := range systems {
		out = append(out, name)
	}
	return out
}
