package reading

// Sample is the newest sample of a value.
type Sample struct {
	Value int64 `json:"value"`
	// At is its time in µs since 1970.
	At int64 `json:"at"`
	// Blank says that the value cannot be read.
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
// those of errors. No field of a switch tells the state of its links, from which DCGM derives
// DCGM_FR_NVLINK_DOWN: FieldSwitchReset, sampled now, tells that DCGM reads the switch.
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
