package reading

import (
	"maps"
	"slices"
)

// Field is one of DCGM's fields, by its number.
type Field int

// Fields that the monitor reads.
const (
	FieldUUID           Field = 54
	FieldPCI            Field = 57
	FieldInforomValid   Field = 84
	FieldMargin         Field = 153
	FieldPower          Field = 155
	FieldPending        Field = 396
	FieldRecoveryAction Field = 1523
)

// deciding are the fields from which DCGM's health check derives an error, by its name:
// it drops an incident when the newest sample is blank or older than a minute (DCGM 4.6.0).
// Errors that it derives from XIDs alone have none.
var deciding = map[string][]Field{
	"DCGM_FR_PCI_REPLAY_RATE":               {202},
	"DCGM_FR_VOLATILE_DBE_DETECTED":         {311},
	"DCGM_FR_PENDING_PAGE_RETIREMENTS":      {392},
	"DCGM_FR_RETIRED_PAGES_LIMIT":           {390, 391},
	"DCGM_FR_RETIRED_PAGES_DBE_LIMIT":       {391},
	"DCGM_FR_CORRUPT_INFOROM":               {FieldInforomValid},
	"DCGM_FR_CLOCKS_EVENT_THERMAL":          {241},
	"DCGM_FR_POWER_UNREADABLE":              {FieldPower},
	"DCGM_FR_CLOCKS_EVENT_POWER":            {240},
	"DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD":    {409, 419},
	"DCGM_FR_NVLINK_ERROR_THRESHOLD":        {409, 419},
	"DCGM_FR_NVLINK_ERROR_CRITICAL":         {429, 439},
	"DCGM_FR_FIELD_VIOLATION":               {174},
	"DCGM_FR_FAULTY_MEMORY":                 {1507},
	"DCGM_FR_ROW_REMAP_FAILURE":             {395},
	"DCGM_FR_GPU_RECOVERY_RESET":            {FieldRecoveryAction},
	"DCGM_FR_GPU_RECOVERY_REBOOT":           {FieldRecoveryAction},
	"DCGM_FR_GPU_RECOVERY_DRAIN_P2P":        {FieldRecoveryAction},
	"DCGM_FR_GPU_RECOVERY_DRAIN_RESET":      {FieldRecoveryAction},
	"DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT": {393},
	"DCGM_FR_PENDING_ROW_REMAP":             {FieldPending},
	"DCGM_FR_UNCONTAINED_ERROR":             {},
	"DCGM_FR_CONTAINED_ERROR":               {},
	"DCGM_FR_FALLEN_OFF_BUS":                {},
	"DCGM_FR_XID_ERROR":                     {},
	"GPU_TEMP_HW_SLOWDOWN_VIOLATION":        {FieldMargin},
}

// ofSystem are the fields that decide the errors of a health system that deciding lacks.
var ofSystem = map[uint32][]Field{
	0x1: {202}, 0x2: {174, 409, 419, 429, 439}, 0x10: {311, 390, 391, 392, 393, 395, 1507}, 0x40: {FieldInforomValid},
	0x80: {241}, 0x100: {FieldPower, 240}, 0x200: {FieldRecoveryAction},
}

// Deciding are the fields from which an error of a health system is derived; none where
// no field of a GPU is known to decide it.
func Deciding(system uint32, name string) []Field {
	if fields, ok := deciding[name]; ok {
		return fields
	}
	return ofSystem[system]
}

// DecidingFields are all of them, in order. The health watches cover them, but for
// FieldMargin and FieldPending.
func DecidingFields() []Field {
	all := map[Field]bool{}
	for _, fields := range slices.Concat(slices.Collect(maps.Values(deciding)), slices.Collect(maps.Values(ofSystem))) {
		for _, x := range fields {
			all[x] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Sample is the newest sample of a value.
type Sample struct {
	Value int64 `json:"value"`
	// At is its time in µs since 1970.
	At int64 `json:"at"`
	// Blank means that the value cannot be read.
	Blank bool `json:"blank,omitempty"`
}

// NVSwitch is one that is watched.
type NVSwitch struct {
	ID uint `json:"id"`
	// Samples are the newest ones of SwitchFields; DCGM has none of a field that is missing.
	Samples map[Field]Sample `json:"samples,omitempty"`
}

// Fields of NVSwitches. Those of errors have the number of the newest error (SXID), and their
// samples bear the time of that error: of an NVSwitch without one, DCGM has no sample, or one of
// 0 (read in the source of DCGM 4.6.0: DcgmHealthWatch, NvSwitchData, DcgmNscqManager).
const (
	FieldSwitchFatal    Field = 856 // DCGM_FI_DEV_SXID_FATAL_ERROR
	FieldSwitchNonFatal Field = 857 // DCGM_FI_DEV_SXID_NON_FATAL_ERROR
	FieldSwitchReset    Field = 864 // DCGM_FI_DEV_NVSWITCH_RESET_REQUIRED
)

// SwitchFields are the fields by which a fault of an NVSwitch ends. The health watches cover
// those of errors. No field of a switch has the state of its links, from which DCGM derives
// DCGM_FR_NVLINK_DOWN: FieldSwitchReset, sampled now, shows that DCGM reads the switch.
func SwitchFields() []Field { return []Field{FieldSwitchFatal, FieldSwitchNonFatal, FieldSwitchReset} }

// OfSwitch is the field from which DCGM derives an error of an NVSwitch, by the error's name;
// false where it is no field.
func OfSwitch(name string) (Field, bool) {
	switch name {
	case "DCGM_FR_NVSWITCH_FATAL_ERROR":
		return FieldSwitchFatal, true
	case "DCGM_FR_NVSWITCH_NON_FATAL_ERROR":
		return FieldSwitchNonFatal, true
	}
	return 0, false
}
