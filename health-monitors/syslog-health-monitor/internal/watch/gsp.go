package watch

// gspLines is how many lines behind an XID 119 or 120 the driver says more about the
// same failure: it writes the history of the calls to the GSP between them.
const gspLines = 128

// failedGSP is the GPU whose GSP has failed just now. Some messages of the driver about
// such a failure name no GPU; then it is this one. The zero value is none.
type failedGSP struct {
	// PCI is the GPU's address, empty where several GPUs have failed at a time.
	PCI string `json:"pci,omitempty"`
	// Left is how many further lines may pass.
	Left int `json:"left,omitempty"`
}

// fails notes the failure of the GSP of the GPU at an address.
func (g failedGSP) fails(pci string) failedGSP {
	if g.Left > 0 && g.PCI != pci {
		pci = ""
	}
	return failedGSP{PCI: pci, Left: gspLines}
}

// pass lets lines pass.
func (g failedGSP) pass(lines int) failedGSP {
	if g.Left -= lines; g.Left <= 0 {
		return failedGSP{}
	}
	return g
}
