package check

import (
	"fmt"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// finding is a fault that one look shows.
type finding struct {
	check  string
	code   string
	entity reading.Entity
	of     string          // the GPU that it belongs to
	parent *reading.Entity // the GPU of a MIG instance
	action record.Action
	fatal  bool
	text   string
	// field: the value of a field shows it, and not DCGM's health check.
	field bool
	// fields are those from which it is derived.
	fields []reading.Field
	edge   bool
	cured  bool
	extra  map[string]string
}

func (f finding) key() string { return Key(f.check, f.of, f.entity, f.code) }

// found is what one poll shows: the faults, in order, and the keys about which it shows nothing.
type found struct {
	state      State
	order      []string
	by         map[string]finding
	blind      map[string]bool
	suppressed map[string]int
	unknown    int // incidents of health systems that are not known
}

// add takes a finding; of two of one key the worse counts.
func (f *found) add(x finding) {
	x.of = f.state.of(x.entity)
	key := x.key()
	if old, ok := f.by[key]; ok {
		if old.fatal || !x.fatal {
			return
		}
		f.by[key] = x
		return
	}
	f.order = append(f.order, key)
	f.by[key] = x
}

// find is what a reading shows.
func find(s State, r reading.Reading, inv nodefile.Inventory, p Policy) *found {
	f := &found{state: s, by: map[string]finding{}, blind: map[string]bool{}, suppressed: map[string]int{}}
	for _, x := range r.Incidents {
		f.incident(x, inv, p)
	}
	for _, d := range r.Devices {
		f.device(d, inv, p)
	}
	return f
}

func (f *found) incident(x reading.Incident, inv nodefile.Inventory, p Policy) {
	if x.Health == reading.Pass {
		return
	}
	check, known := reading.Check(x.System)
	if !known {
		f.unknown++
	}
	row := p.Table.Of(x.Code)
	if x.Health == reading.Fail && row.Action == record.ActionNone && !row.FromOperator {
		row.Action = f.remedy(row.Name, x, inv, p)
	}
	if label, idle := f.inapplicable(row.Name, x.Entity, inv, p); idle {
		f.suppressed[label]++
		return
	}
	f.add(finding{
		check: check, code: row.Name, entity: x.Entity, action: row.Action, fatal: fatal(row, x.Health), text: x.Text,
		fields: reading.Deciding(x.System, row.Name),
		extra:  map[string]string{"dcgm_system": fmt.Sprintf("0x%x", x.System), "dcgm_health": healthName(x.Health), "dcgm_code": number(x.Code)},
	})
}

func healthName(h reading.Health) string {
	switch h {
	case reading.Warn:
		return "WARN"
	case reading.Fail:
		return "FAIL"
	case reading.Pass:
		return "PASS"
	}
	return fmt.Sprint(int(h))
}

// fatal keeps WARN and FAIL apart: a warning takes no node out of service, unless
// the operator's file lists the error with an action.
func fatal(row Row, h reading.Health) bool {
	return row.Action != record.ActionNone && (row.FromOperator || h != reading.Warn)
}

// remedy is the action for a failure that the table has none for: DCGM means more by it
// than by the warning of the same name. Of an XID it is what the XID needs; another is for a
// person.
func (f *found) remedy(code string, x reading.Incident, inv nodefile.Inventory, p Policy) record.Action {
	if n := f.state.failing(f.state.of(x.Entity)); code == codeXID && x.System == reading.AllSystems && n != 0 {
		if j := p.Catalogue.Evaluate(xid.Fault{Code: n}, inv.Driver); j.Action != record.ActionNone {
			return j.Action
		}
	}
	return record.ActionContactSupport
}

// inapplicable reports whether an error is suppressed: by name, or because the GPU never
// had an NVLink that could be down. What is not known about a GPU suppresses nothing.
func (f *found) inapplicable(code string, e reading.Entity, inv nodefile.Inventory, p Policy) (label string, idle bool) {
	if p.Suppressed[code] {
		return code, true
	}
	if code != codeNVLinkDown {
		return "", false
	}
	if e.Kind == reading.Link {
		e, _ = e.Link()
	}
	gpu, ok := f.state.described(e.ID, inv)
	if e.Kind != reading.GPU || !ok || gpu.ActiveLinks == nil || *gpu.ActiveLinks != 0 || f.state.linked(gpu.UUID) {
		return "", false
	}
	switch {
	case gpu.Links != nil && *gpu.Links == 0:
		return code + "_NO_NVLINK_HARDWARE", true
	case p.UnbridgedPCIe && strings.Contains(gpu.Name, "PCIe"):
		return code + "_UNBRIDGED_PCIE", true
	}
	return "", false
}

// device evaluates what DCGM's health check does not.
func (f *found) device(d reading.Device, inv nodefile.Inventory, p Policy) {
	gpu := reading.Entity{Kind: reading.GPU, ID: d.ID}
	if d.Status == reading.Lost && !p.Suppressed[CodeLost] {
		f.add(finding{
			check: LostGPU, code: CodeLost, entity: gpu, action: p.Table.Named(codeFallenOff).Action, fatal: true,
			text: fmt.Sprintf("GPU %d is lost: DCGM can no longer reach it", d.ID),
		})
	}
	f.pending(d, gpu, p)
	f.margin(d, gpu, inv, p)
}

// pending evaluates rows of memory that wait for a reset: until then the driver keeps
// their pages from being used, so that alone takes no node out of service.
func (f *found) pending(d reading.Device, gpu reading.Entity, p Policy) {
	if d.RemapPending == nil {
		f.blind[Key(memory, f.state.of(gpu), gpu, codePending)] = true
		return
	}
	if row := p.Table.Named(codePending); *d.RemapPending && !p.Suppressed[codePending] {
		f.add(finding{
			check: memory, code: codePending, entity: gpu, action: row.Action, fatal: fatal(row, reading.Warn), field: true, fields: []reading.Field{reading.FieldPending},
			text: fmt.Sprintf("GPU %d has memory rows pending remapping, which requires a GPU reset", d.ID),
		})
	}
}

// margin evaluates how far a GPU is from slowing down by its temperature.
func (f *found) margin(d reading.Device, gpu reading.Entity, inv nodefile.Inventory, p Policy) {
	known, ok := f.state.described(d.ID, inv)
	if !ok || known.SlowdownMargin == nil || d.Margin == nil {
		f.blind[Key(Margin, f.state.of(gpu), gpu, CodeMargin)] = true
		return
	}
	if row := p.Table.Named(CodeMargin); *d.Margin < int64(*known.SlowdownMargin) && !p.Suppressed[CodeMargin] {
		f.add(finding{
			check: Margin, code: CodeMargin, entity: gpu, action: row.Action, fatal: row.Action != record.ActionNone, field: true,
			fields: []reading.Field{reading.FieldMargin},
			text:   fmt.Sprintf("GPU %d is %d °C below its temperature limit, and it slows down when the margin is less than %d °C", d.ID, *d.Margin, *known.SlowdownMargin),
		})
	}
}
