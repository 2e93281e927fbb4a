package watch

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/pattern"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// Classes and entities whose values are looked up.
const (
	classGPU  = "GPU"
	entityPCI = "PCI"
	entityNIC = "NIC"
	// metadataNIC is the address of a network card whose name is known.
	metadataNIC = "pci"
	// metadataInterface is the network interface that a match names.
	metadataInterface = "interface"
)

// ofPatterns takes a message that nothing else knows.
func (b *batch) ofPatterns(line source.Line, text string) error {
	for _, f := range b.m.Policy.Catalogue.Patterns.Find(text, line.SinceBoot, &b.s.Patterns) {
		about := []pattern.Match{f}
		switch {
		case f.Rule.Ignore:
			b.repeated = append(b.repeated, f.Rule.Name)
			continue
		case f.Rule.KnownGPU:
			about = b.matchGPUs(f)
		}
		for _, f := range about {
			if err := b.pattern(line, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// pattern reports what a pattern found, or the recovery that it is.
func (b *batch) pattern(line source.Line, f pattern.Match) error {
	d, key := b.named(&f)
	if f.Rule.Class == classGPU && d.PCI == "" && f.Rule.Action == record.ActionComponentReset && b.s.GSP.PCI != "" {
		d = b.device(b.s.GSP.PCI)
		key = d.PCI
	}
	if f.Rule.Class == classGPU && !line.Past {
		if b.s.lost(d.PCI) {
			b.repeated = append(b.repeated, f.Rule.Name)
			return nil // the fault that this follows from is reported
		}
	}
	s := b.sighting(line)
	if len(f.Rule.Clears) > 0 {
		set := b.m.Policy.Catalogue.Patterns
		set.Cleared(f, d.PCI, &b.s.Patterns)
		return b.clear(line, f.Recovery(d, b.recoveryOf(f.Rule.Check, line), kernellog.Cut(line.Text, messageBytes)), key)
	}
	if !b.s.Patterns.Counts(f, d.PCI, s.At) {
		b.repeated = append(b.repeated, f.Rule.Name)
		return nil
	}
	if b.tooOld(line) {
		b.s.Patterns.Forget(f, d.PCI) // it makes no event that another could repeat
	}
	if f.Rule.Strategy == record.PersistOnly {
		s.Strategy = record.PersistOnly // never more than the monitor's own
	}
	e := f.Event(d, s, kernellog.Cut(line.Text, messageBytes))
	if f.Rule.Lost {
		b.lose(line, d.PCI)
	}
	return b.send(line, e, recovery.Report{
		Device: key, Code: f.Rule.Code, Strategy: s.Strategy, Fatal: f.Rule.Fatal,
		RebootCures: f.Rule.RebootCures, ResetCures: f.Rule.Action == record.ActionComponentReset,
	})
}

// named looks up what a match is about: the GPU at its address, or the name of
// its network card. key is the same for all matches about that thing.
func (b *batch) named(f *pattern.Match) (d location.Device, key string) {
	var rest [][2]string
	for _, e := range f.Entities {
		switch {
		case e[0] == entityPCI && f.Rule.Class == classGPU:
			d = b.device(location.Address(e[1]))
			continue
		case e[0] == entityNIC && b.m.Policy.NIC != nil:
			if name := b.m.Policy.NIC(e[1]); name != "" {
				f.Metadata[metadataNIC], e[1] = e[1], name
			}
		}
		rest = append(rest, e)
	}
	if card := b.ofInterface(f.Metadata[metadataInterface]); card != "" && !slices.ContainsFunc(rest, isNIC) {
		rest = append(rest, [2]string{entityNIC, card})
	}
	f.Entities = rest
	if key = d.PCI; key == "" {
		key = pattern.Thing(rest)
	}
	return d, key
}

func isNIC(e [2]string) bool { return e[0] == entityNIC }

// ofInterface names the network card of an interface, by the interface's own name where
// its card is not known: it may be in the network of a pod. Without sysfs there is none.
func (b *batch) ofInterface(name string) string {
	if name == "" || b.m.Policy.Interface == nil {
		return ""
	}
	if card := b.m.Policy.Interface(name); card != "" {
		return card
	}
	return name
}

// clearPatterns ends what the reset of a GPU ends of the checks of patterns.
func (b *batch) clearPatterns(line source.Line, d location.Device) error {
	for _, check := range slices.Sorted(maps.Keys(b.s.Memory)) {
		codes := b.s.Memory[check].AfterReset(d.PCI, nil)
		if check == xid.Check || d.PCI == "" || len(codes) == 0 {
			continue
		}
		if err := b.clear(line, recovery.ResetSucceeded(check, d, b.recoveryOf(check, line), codes), d.PCI); err != nil {
			return err
		}
	}
	return nil
}

// InterfaceNames looks up the name of the network card of a network interface in sysfs:
// that of its InfiniBand device.
func InterfaceNames(sysfs string) func(name string) string {
	return func(name string) string {
		if filepath.Base(name) != name {
			return ""
		}
		names, err := os.ReadDir(filepath.Join(sysfs, "class/net", name, "device/infiniband"))
		if err != nil || len(names) == 0 {
			return ""
		}
		return names[0].Name()
	}
}

// NICNames looks up the name of the network card at a PCI address in sysfs: that
// of its InfiniBand device, else of its network interface.
func NICNames(sysfs string) func(pci string) string {
	return func(pci string) string {
		if filepath.Base(pci) != pci {
			return ""
		}
		for _, kind := range []string{"infiniband", "net"} {
			names, err := os.ReadDir(filepath.Join(sysfs, "bus/pci/devices", pci, kind))
			if err == nil && len(names) > 0 {
				return names[0].Name()
			}
		}
		return ""
	}
}

// gspLines is how many lines behind an XID 119 or 120 the driver reports more about the
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
