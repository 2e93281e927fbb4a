package evaluation

import (
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// minPeers is how many cards of one role it takes to decide that one of them differs.
const minPeers = 3

// links evaluates the ports of a card: one that was active and has no link is in
// trouble. A port that never was may have no cable.
func (ps *pass) links(d Device) {
	for _, p := range d.Ports {
		was := ps.m.Cards[d.Location].Ports[p.Number].Active
		switch p.State {
		case Active:
			ps.well(d, p.Number, "the port is active", CodeDown, CodeDisabled)
		case Down:
			if was {
				ps.seen[Key{StateCheck(p.Layer), d.Name, p.Number, CodeDown}] = broken(d, "the port was active and has lost its link")
			}
		case Disabled:
			if was {
				ps.seen[Key{StateCheck(p.Layer), d.Name, p.Number, CodeDisabled}] = broken(d, "the port was active and is disabled")
			}
		case Between, Unreadable:
		}
	}
}

// well marks faults of state as ended, under whichever layer they were reported.
func (ps *pass) well(d Device, port, text string, codes ...string) {
	for _, layer := range []Layer{InfiniBand, Ethernet} {
		for _, code := range codes {
			ps.seen[Key{StateCheck(layer), d.Name, port, code}] = sight{reason: Ended, text: text, location: d.Location}
		}
	}
}

// broken is the sight of a fault that a new machine fixes.
func broken(d Device, text string) sight {
	return sight{bad: true, fatal: true, action: record.ActionReplaceVM, text: text, location: d.Location, guid: d.GUID}
}

// charDevice checks whether programs can still open a card that they could open before.
func (ps *pass) charDevice(d Device) {
	if !ps.r.CharDevices {
		return
	}
	k := Key{CharDeviceCheck, d.Name, "", CodeNoCharDevice}
	switch {
	case d.CharDevice:
		ps.seen[k] = sight{reason: Ended, text: "the card has a character device", location: d.Location}
	case ps.m.Cards[d.Location].CharDevice:
		// The driver lost it and not the card, so that a reboot brings it back.
		ps.seen[k] = sight{
			bad: true, fatal: true, action: record.ActionRestartVM, text: "the card no longer has a character device",
			location: d.Location, guid: d.GUID,
		}
	}
}

// checkRemoved evaluates the cards that are remembered and not there.
func (ps *pass) checkRemoved() {
	names := map[string]bool{}
	for _, d := range ps.r.Devices {
		names[d.Name] = true
		ps.well(d, "", "the card is present", CodeGone)
	}
	for location, c := range ps.m.Cards {
		if _, there := ps.r.Card(location); there {
			continue
		}
		name := c.Name
		if names[name] {
			name = location // another card has the name now
		}
		s := broken(Device{Location: location, GUID: c.GUID}, fmt.Sprintf("the card at %s is missing", location))
		if ps.driverless(c) {
			s.action, s.text, s.longTrial = record.ActionRestartVM, "all watched cards of its driver are missing", true
			c.Driverless = ps.r.At
			ps.m.Cards[location] = c
		}
		ps.seen[Key{StateCheck(c.Layer), name, "", CodeGone}] = s
	}
}

// driverless reports whether no other card of a card's driver is there either, or none of
// several: that is the driver, which is reloaded with every update.
func (ps *pass) driverless(c Card) bool {
	switch {
	case len(ps.r.Devices) == 0 && len(ps.m.Cards) > 1:
		return true
	case c.Driver == "":
		return len(ps.r.Devices) == 0 && len(ps.r.Unwatched) == 0
	}
	return !ps.r.Drivers[c.Driver]
}

// role is what cards have in common that should have as many active ports.
type role struct {
	model string
	layer Layer
	ports int
}

// peers compares cards of which no active port was ever lost with those of the same role.
func (ps *pass) peers() {
	groups := map[role][]Device{}
	for _, d := range ps.r.Devices {
		r := role{d.Model, d.Layer(), len(d.Ports)}
		groups[r] = append(groups[r], d)
	}
	for _, group := range groups {
		most := majority(group)
		for _, d := range group {
			ps.peer(d, most, len(group))
		}
	}
}

func (ps *pass) peer(d Device, most, of int) {
	k := Key{StateCheck(d.Layer()), d.Name, "", CodeFewerPorts}
	active, known := d.ActivePorts()
	f, open := ps.m.Open[k]
	switch {
	case open && active >= f.Want:
		ps.seen[k] = sight{reason: Ended, text: fmt.Sprintf("%d ports are active", active), location: d.Location}
	case !known || active >= most || ps.lost(d) || ps.m.Cards[d.Location].Alone:
	default:
		s := broken(d, fmt.Sprintf("%d ports are active, and most of the %d cards of this kind have %d", active, of, most))
		s.want = most
		ps.seen[k] = s
	}
}

// lost reports whether a port of the card was active and is not any more; that is a fault
// of the port.
func (ps *pass) lost(d Device) bool {
	for _, p := range d.Ports {
		if p.State != Active && ps.m.Cards[d.Location].Ports[p.Number].Active {
			return true
		}
	}
	return false
}

// majority is the number of active ports that more than half of the cards have; 0 if
// there is none.
func majority(group []Device) int {
	if len(group) < minPeers {
		return 0
	}
	votes := map[int]int{}
	for _, d := range group {
		if active, known := d.ActivePorts(); known {
			votes[active]++
		}
	}
	for active, n := range votes {
		if 2*n > len(group) {
			return active
		}
	}
	return 0
}
