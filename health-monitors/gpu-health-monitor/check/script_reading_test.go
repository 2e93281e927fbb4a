package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// read makes a reading of two GPUs of lines such as "0x10 FAIL 4 gpu:0", "status 1 4",
// "xid 0 79 5" (at second 5), "margin 0 3", "pending 0 true", "gone 1", "uuid 0 GPU-1"
// (- is none; a PCI address may follow), "switch 3" (see nvswitch); "link:0/3" is link 3 of GPU 0, and
// "link:0" its link 7. Every value has a sample of now, but for "blank 0 311" (all without
// a field), "aged 0 70 311" (70 s old, or all), and "unwatched 1"; "recovery 0 1" is what
// the driver asks for.
func (n *node) read(t *testing.T, lines []string) reading.Reading {
	t.Helper()
	r := reading.Reading{Next: n.view.Now.UnixMicro()}
	for id := range uint(2) {
		no := false
		d := reading.Device{
			ID: id, Status: reading.OK, UUID: fmt.Sprintf("GPU-%d", id), PCI: fmt.Sprintf("0000:%d0:00.0", id+1), RemapPending: &no,
			Samples: map[reading.Field]int64{reading.FieldUUID: r.Next, reading.FieldPCI: r.Next},
		}
		for _, field := range reading.DecidingFields() {
			d.Samples[field] = r.Next
		}
		r.Devices = append(r.Devices, d)
	}
	for _, line := range lines {
		w := strings.Fields(line)
		switch w[0] {
		case "status":
			d := &r.Devices[integer(t, w[1])]
			d.Status = reading.Status(integer(t, w[2]))
			if !d.Status.Good() {
				d.UUID, d.PCI, d.RemapPending, d.Samples = "", "", nil, nil
			}
		case "unwatched":
			d := &r.Devices[integer(t, w[1])]
			d.Unwatched, d.Samples = true, nil
		case "recovery":
			action := integer(t, w[2])
			r.Devices[integer(t, w[1])].Recovery = &action
		case "blank", "aged":
			sampled(t, &r.Devices[integer(t, w[1])], w)
		case "gone":
			r.Devices = r.Devices[:integer(t, w[1])]
		case "switch":
			r.Switches = append(r.Switches, n.nvswitch(t, w))
		case "uuid":
			d := &r.Devices[integer(t, w[1])]
			if d.UUID = strings.TrimPrefix(w[2], "-"); d.UUID != "" {
				d.PCI = fmt.Sprintf("0000:%d0:00.0", integer(t, strings.TrimPrefix(w[2], "GPU-"))+1)
			} else {
				delete(d.Samples, reading.FieldUUID)
			}
			if len(w) > 3 {
				d.PCI = strings.TrimPrefix(w[3], "-")
			}
		case "margin":
			m := integer(t, w[2])
			r.Devices[integer(t, w[1])].Margin = &m
		case "pending":
			yes := w[2] == "true"
			r.Devices[integer(t, w[1])].RemapPending = &yes
			if w[2] == "blank" {
				r.Devices[integer(t, w[1])].RemapPending = nil
				delete(r.Devices[integer(t, w[1])].Samples, reading.FieldPending)
			}
		case "xid":
			r.XIDs = append(r.XIDs, n.xid(t, w))
		default:
			r.Incidents = append(r.Incidents, incident(t, w))
		}
	}
	return r
}

// nvswitch is one of a line such as "switch 3", which needs no reset, "switch 3 864=1 856=20034",
// "switch 3 856=20034@120" (the sample is 120 s old), "864=blank", "864=none".
func (n *node) nvswitch(t *testing.T, w []string) reading.NVSwitch {
	t.Helper()
	now := n.view.Now.UnixMicro()
	x := reading.NVSwitch{ID: uint(integer(t, w[1])), Samples: map[reading.Field]reading.Sample{reading.FieldSwitchReset: {At: now}}}
	for _, word := range w[2:] {
		number, value, _ := strings.Cut(word, "=")
		field := reading.Field(integer(t, number))
		value, age, _ := strings.Cut(value, "@")
		s := reading.Sample{At: now - (time.Duration(integer(t, cmp.Or(age, "0"))) * time.Second).Microseconds(), Blank: value == "blank"}
		if value == "none" {
			delete(x.Samples, field)
			continue
		}
		if !s.Blank {
			s.Value = integer(t, value)
		}
		x.Samples[field] = s
	}
	return x
}

// xid is one of a line such as "xid 0 79 5", "xid 0 79 5-3" or "xid 0 79 now+3" (µs), or of a MIG instance:
// "xid 4:2/1 94 now" of GPU 1, without "/1" of an unknown one.
func (n *node) xid(t *testing.T, w []string) reading.XID {
	t.Helper()
	x := reading.XID{Entity: reading.Entity{Kind: reading.GPU}, Number: integer(t, w[2])}
	base, offset := w[3], ""
	if i := strings.IndexAny(base, "+-"); i > 0 {
		base, offset = base[:i], base[i:]
	}
	x.At = n.view.Now.UnixMicro()
	if base != "now" {
		x.At = n.epoch.Add(time.Duration(integer(t, base)) * time.Second).UnixMicro()
	}
	x.At += integer(t, cmp.Or(offset, "0"))
	thing, gpu, known := strings.Cut(w[1], "/")
	kind, id, instance := strings.Cut(thing, ":")
	if instance {
		x.Entity.Kind, thing = reading.Kind(integer(t, kind)), id
	}
	if known {
		id := uint(integer(t, gpu))
		x.GPU = &id
	}
	x.Entity.ID = uint(integer(t, thing))
	return x
}

// sampled has values of a GPU be blank, or have samples that are some seconds old.
func sampled(t *testing.T, d *reading.Device, w []string) {
	t.Helper()
	age, fields := time.Duration(0), w[2:]
	if w[0] == "aged" {
		age, fields = time.Duration(integer(t, w[2]))*time.Second, w[3:]
	}
	for field := range d.Samples {
		if len(fields) > 0 && !slices.Contains(fields, strconv.Itoa(int(field))) {
			continue
		}
		if d.Samples[field] -= age.Microseconds(); w[0] != "blank" {
			continue
		}
		delete(d.Samples, field)
		switch field {
		case reading.FieldUUID:
			d.UUID = ""
		case reading.FieldPCI:
			d.PCI = ""
		case reading.FieldPending:
			d.RemapPending = nil
		case reading.FieldRecoveryAction:
			d.Recovery = nil
		case reading.FieldInforomValid, reading.FieldMargin, reading.FieldPower, reading.FieldSwitchFatal, reading.FieldSwitchNonFatal, reading.FieldSwitchReset:
		}
	}
}

func incident(t *testing.T, w []string) reading.Incident {
	t.Helper()
	health := map[string]reading.Health{"PASS": reading.Pass, "WARN": reading.Warn, "FAIL": reading.Fail}[w[1]]
	kind, id, _ := strings.Cut(w[3], ":")
	id, index, _ := strings.Cut(id, "/")
	e := reading.Entity{ID: uint(integer(t, id))}
	switch kind {
	case "gpu":
		e.Kind = reading.GPU
	case "switch":
		e.Kind = reading.Switch
	case "mig":
		e.Kind = reading.GPUInstance
	case "port":
		e = link(reading.Entity{Kind: reading.Switch, ID: e.ID}, 7)
	case "link":
		e = link(reading.Entity{Kind: reading.GPU, ID: e.ID}, uint(integer(t, cmp.Or(index, "7"))))
	}
	return reading.Incident{System: uint32(integer(t, w[0])), Health: health, Code: uint(integer(t, w[2])), Entity: e, Text: strings.Join(w[4:], " ")}
}

// link is the entity of a link, as DCGM numbers it.
func link(parent reading.Entity, index uint) reading.Entity {
	return reading.Entity{Kind: reading.Link, ID: uint(parent.Kind)&0xff | index&0xffff<<8 | parent.ID&0xff<<24}
}

func integer(t *testing.T, s string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
