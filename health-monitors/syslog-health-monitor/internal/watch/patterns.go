package watch

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/gpureset"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/pattern"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sighting"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/xid"
)

// Classes and entities whose values are looked up.
const (
	classGPU  = "GPU"
	entityPCI = "PCI"
	entityNIC = "NIC"
	// metadataNIC is the address of a network card whose name is known.
	metadataNIC = "pci"
)

// ofPatterns takes a line that nothing else knows.
func (t *taking) ofPatterns(line source.Line) error {
	for _, f := range t.m.Policy.Catalogue.Patterns.Find(line.Text, &t.s.Patterns) {
		if !t.kernelWrote(line, f.At) {
			t.foreign++
			continue
		}
		if err := t.pattern(line, f); err != nil {
			return err
		}
	}
	return nil
}

// kernelWrote tells whether the kernel wrote a line of which a pattern matches
// from at on.
func (t *taking) kernelWrote(line source.Line, at int) bool {
	return t.m.Policy.UserLines || line.Kernel && (!t.m.Policy.Tagged || kernellog.FromKernel(line.Text, at))
}

// pattern reports what a pattern found, or the recovery that it is.
func (t *taking) pattern(line source.Line, f pattern.Match) error {
	d, key := t.named(&f)
	if f.Rule.Class == classGPU && !line.Past {
		if t.s.lost(d.PCI) {
			t.repeated = append(t.repeated, f.Rule.Name)
			return nil // the fault that this follows from is reported
		}
	}
	s := t.sighting(line)
	if len(f.Rule.Clears) > 0 {
		set := t.m.Policy.Catalogue.Patterns
		set.Cleared(f, d.PCI, &t.s.Patterns)
		return t.clear(line, f.Recovery(d, t.recoveryOf(f.Rule.Check, line), kernellog.Cut(line.Text, messageBytes)), key)
	}
	if !t.s.Patterns.Counts(f, d.PCI, s.At) {
		t.repeated = append(t.repeated, f.Rule.Name)
		return nil
	}
	if t.tooOld(line) {
		t.s.Patterns.Forget(f, d.PCI) // it makes no event that another could repeat
	}
	if f.Rule.Strategy == record.PersistOnly {
		s.Strategy = record.PersistOnly // never more than the monitor's own
	}
	e := f.Event(d, s, kernellog.Cut(line.Text, messageBytes))
	if f.Rule.Lost {
		t.lose(line, d.PCI)
	}
	return t.send(line, e, recovery.Report{
		Device: key, Code: f.Rule.Code, Strategy: s.Strategy, Fatal: f.Rule.Fatal,
		RebootCures: f.Rule.RebootCures, ResetCures: f.Rule.Action == record.ActionComponentReset,
	})
}

// named looks up what a match is about: the GPU at its address, or the name of
// its network card. key is the same for all matches about that thing.
func (t *taking) named(f *pattern.Match) (d sighting.Device, key string) {
	var rest [][2]string
	for _, e := range f.Entities {
		switch {
		case e[0] == entityPCI && f.Rule.Class == classGPU:
			d = t.device(sighting.Address(e[1]))
			continue
		case e[0] == entityNIC && t.m.Policy.NIC != nil:
			if name := t.m.Policy.NIC(e[1]); name != "" {
				f.Metadata[metadataNIC], e[1] = e[1], name
			}
		}
		rest = append(rest, e)
	}
	f.Entities = rest
	if key = d.PCI; key == "" {
		key = pattern.Thing(rest)
	}
	return d, key
}

// clearPatterns ends what the reset of a GPU ends of the checks of patterns.
func (t *taking) clearPatterns(line source.Line, d sighting.Device) error {
	for _, check := range slices.Sorted(maps.Keys(t.s.Memory)) {
		codes := t.s.Memory[check].AfterReset(d.PCI, nil)
		if check == xid.Check || d.PCI == "" || len(codes) == 0 {
			continue
		}
		if err := t.clear(line, gpureset.Succeeded(check, d, t.recoveryOf(check, line), codes), d.PCI); err != nil {
			return err
		}
	}
	return nil
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
