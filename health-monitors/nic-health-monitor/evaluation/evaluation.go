package evaluation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Codes of faults that no counter reports.
const (
	CodeDown         = "NIC_PORT_DOWN"
	CodeDisabled     = "NIC_PORT_DISABLED"
	CodeGone         = "NIC_GONE"
	CodeFewerPorts   = "NIC_FEWER_ACTIVE_PORTS"
	CodeNoCharDevice = "NIC_NO_CHAR_DEVICE"
)

// Policy is what the operator decided.
type Policy struct {
	// Strategy of the events.
	Strategy record.Strategy
	// ConsecutivePolls and Persist are how often in a row, and for how long, a link or card
	// must be in trouble.
	ConsecutivePolls int
	Persist          time.Duration
	// Reload is how long all cards of a driver may be away at once.
	Reload time.Duration
	// Steady is how long it must be well again.
	Steady time.Duration
	// Settle is how long after the first look of a boot, and after their driver was
	// away, nothing is reported about links and cards: they come up one by one.
	Settle time.Duration
	// QuietTime is how long a counter must stay within its bound for its fault to end;
	// a fatal one ends only when the counter is set back or the node has rebooted.
	QuietTime time.Duration
	Counters  []Counter
}

// Reason is why a fault began or ended.
type Reason string

// Reasons.
const (
	// Began: a link or card was in trouble for `consecutivePolls` polls in a row and `persistTime`, or a counter exceeded
	// its bound, so the fault is reported. Action: check the card, the cable and the port at the other end.
	// `nvsentinel why <node>` shows the fault.
	Began Reason = "began"
	// Ended: the link or card was well for `steadyTime`, so the recovery is reported. Action: none.
	Ended Reason = "ended"
	// Outlasted: the fault was reported before a reboot and is still there, so it is reported again under the new
	// boot. Action: check the card, the cable and the port at the other end, because the reboot did not end the
	// fault.
	Outlasted Reason = "after-reboot"
	// Processed: the fault was reported as PERSIST_ONLY and the strategy is PROCESS now, so it is reported again
	// and fault-quarantine acts on it. Action: none.
	Processed Reason = "strategy-changed"
	// Rebooted: the node has rebooted, which sets its counters back, so the recovery of the fault of a counter is
	// reported. Action: none.
	Rebooted Reason = "rebooted"
	// SetBack: the counter was set back, so the recovery of its fault is reported. Action: none.
	SetBack Reason = "counter-reset"
	// Quiet: a counter that is not fatal stayed within its bound for `quietTime`, so the recovery of its fault is
	// reported. Action: none.
	Quiet Reason = "quiet"
	// Replaced: another card is at the PCI address of the faulty one, so the recovery of the fault is reported.
	// Action: none.
	Replaced Reason = "replaced"
	// Renamed: the card has another name now, so the recovery is reported under the old name. A fault that is
	// still there is reported under the new one. Action: none.
	Renamed Reason = "renamed"
	// Unwatched: the card is not watched any more, or its counter has no rule, so the recovery of the fault is
	// reported. Action: none if that is intended. Otherwise check `--include-devices`, `--exclude-devices` and
	// `[[counters]]`.
	Unwatched Reason = "unwatched"
)

// Report is one event: a fault begins or, healthy, ends.
type Report struct {
	Key      Key
	Reason   Reason
	Healthy  bool
	Fatal    bool
	Action   record.Action
	Strategy record.Strategy
	Message  string
	// Location is the card's.
	Location string
}

// sight is the result of one poll for one key.
type sight struct {
	bad      bool
	fatal    bool
	action   record.Action
	text     string
	location string
	guid     string
	// now: it needs no trial; patience: it needs a long one.
	now       bool
	longTrial bool
	reason    Reason
	counted   bool
	want      int
}

// pass is one reading on its way to a verdict.
type pass struct {
	m Memory
	r Reading
	p Policy
	// seen holds what is known of a key; what is not in it is unknown.
	seen    map[Key]sight
	reports []Report
}

// Evaluate compares a reading with the memory: it returns the memory of the next
// look, and what is to be reported, in a fixed order. What could not be read begins
// nothing and ends nothing.
func Evaluate(m Memory, r Reading, p Policy) (Memory, []Report) {
	l := &pass{m: m.Clone(), r: r, p: p, seen: map[Key]sight{}}
	if r.Boot != l.m.Boot {
		l.turn()
	}
	l.setBack()
	l.forgetUnwatched()
	l.endMoved()
	for _, d := range r.Devices {
		l.links(d)
		l.charDevice(d)
		l.counters(d)
	}
	l.checkRemoved()
	l.peers()
	l.retired()
	l.verdicts()
	l.remember()
	return l.m, l.reports
}

// turn begins a boot: counters begin again, and their faults end.
func (ps *pass) turn() {
	ps.m.Boot, ps.m.Since = ps.r.Boot, ps.r.At
	clear(ps.m.trials)
	for location, c := range ps.m.Cards {
		for number, link := range c.Ports {
			link.Courses = nil
			c.Ports[number] = link
		}
		ps.m.Cards[location] = c
	}
	for _, k := range ps.open() {
		if ps.m.Open[k].Counted {
			ps.end(k, Rebooted, "the node has rebooted")
		}
	}
}

// setBack takes remembered times that are yet to come, of a clock that was set
// back since, for now: nothing waits for it to catch up.
func (ps *pass) setBack() {
	if ps.r.At.Before(ps.m.Since) {
		ps.m.Since = ps.r.At
	}
	for location, c := range ps.m.Cards {
		if ps.r.At.Before(c.Driverless) {
			c.Driverless = ps.r.At
			ps.m.Cards[location] = c
		}
	}
	for k, f := range ps.m.Open {
		if ps.r.At.Before(f.Last) {
			f.Last = ps.r.At
			ps.m.Open[k] = f
		}
	}
}

// forgetUnwatched ends what was reported about cards that are not watched any more: one
// that was left out, or has got the node's default route, is not gone. Nor is one
// without a PCI address, which has its name for a location: software made it.
func (ps *pass) forgetUnwatched() {
	away := slices.Clone(ps.r.Unwatched)
	for location, c := range ps.m.Cards {
		if _, there := ps.r.Card(location); !there && location == c.Name {
			away = append(away, location)
		}
	}
	for _, location := range away {
		delete(ps.m.Cards, location)
	}
	for _, k := range ps.open() {
		if slices.Contains(away, ps.m.Open[k].Location) {
			ps.end(k, Unwatched, "the card is no longer watched")
		}
	}
}

// endMoved ends the faults of cards that were replaced or have another name, and
// forgets cards that were replaced.
func (ps *pass) endMoved() {
	for location, c := range ps.m.Cards {
		if d, there := ps.r.Card(location); there && d.GUID != "" && c.GUID != "" && d.GUID != c.GUID {
			delete(ps.m.Cards, location)
		}
	}
	for _, k := range ps.open() {
		f := ps.m.Open[k]
		d, there := ps.r.Card(f.Location)
		switch {
		case !there:
		case d.GUID != "" && f.GUID != "" && d.GUID != f.GUID:
			ps.end(k, Replaced, "another card is at "+f.Location)
		case d.Name != k.Device:
			ps.end(k, Renamed, "the card at "+f.Location+" is "+d.Name+" now")
		}
	}
}

// verdicts lets what is seen ripen.
func (ps *pass) verdicts() {
	for k := range ps.m.trials {
		if _, known := ps.seen[k]; !known {
			delete(ps.m.trials, k)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(ps.seen), Key.compare) {
		s := ps.seen[k]
		f, open := ps.m.Open[k]
		if due := s.bad != open || s.bad && (f.Boot != ps.m.Boot || ps.raised(f)); !due {
			delete(ps.m.trials, k)
			continue
		}
		if !s.now && !ps.ripe(k, s) {
			continue
		}
		delete(ps.m.trials, k)
		if s.bad {
			ps.begin(k, s)
		} else {
			ps.end(k, s.reason, s.text)
		}
	}
}

// ripe counts the look and reports whether it was seen so for long enough.
func (ps *pass) ripe(k Key, s sight) bool {
	t, begun := ps.m.trials[k]
	if !begun || t.bad != s.bad || t.long != s.longTrial || ps.r.At.Before(t.since) {
		t = trial{bad: s.bad, long: s.longTrial, since: ps.r.At}
	}
	t.polls++
	ps.m.trials[k] = t
	enough := ps.p.Steady
	switch {
	case s.longTrial:
		enough = ps.p.Reload
	case s.bad:
		enough = ps.p.Persist
	}
	settling := ps.m.Since
	if back := ps.m.Cards[s.location].Driverless; !s.longTrial && back.After(settling) {
		settling = back
	}
	settled := !s.bad || ps.r.At.Sub(settling) >= ps.p.Settle
	return settled && t.polls >= ps.p.ConsecutivePolls && ps.r.At.Sub(t.since) >= enough
}

// raised reports whether a fault was only stored so far, and would be reported for action
// now.
func (ps *pass) raised(f Fault) bool {
	return f.Strategy == record.PersistOnly && ps.p.Strategy == record.Process
}

// begin reports a fault. One that was reported under a past boot is reported again: that
// it outlasted the reboot is news. So is one on which nobody acted yet.
func (ps *pass) begin(k Key, s sight) {
	reason := Began
	strategy := ps.p.Strategy
	before, open := ps.m.Open[k]
	switch {
	case open && before.Boot == ps.m.Boot:
		reason = Processed
	case open:
		reason = Outlasted
	}
	if open && before.Strategy == record.Process {
		strategy = record.Process // else its end could not clear what PROCESS reported
	}
	guid := cmp.Or(s.guid, ps.m.Cards[s.location].GUID) // the card's also where it can not be read now
	ps.m.Open[k] = Fault{
		Location: s.location, GUID: guid, Boot: ps.m.Boot, Strategy: strategy, Counted: s.counted, Last: ps.lastOf(s), Want: s.want, IDs: before.IDs,
	}
	ps.reports = append(ps.reports, Report{
		Key: k, Reason: reason, Fatal: s.fatal, Action: s.action, Strategy: ps.p.Strategy, Message: s.text, Location: s.location,
	})
}

func (ps *pass) lastOf(s sight) time.Time {
	if s.counted {
		return ps.r.At
	}
	return time.Time{}
}

// end reports that a fault is over, with the strategy of its report.
func (ps *pass) end(k Key, reason Reason, text string) {
	f := ps.m.Open[k]
	delete(ps.m.Open, k)
	delete(ps.m.trials, k)
	ps.reports = append(ps.reports, Report{
		Key: k, Reason: reason, Healthy: true, Action: record.ActionNone, Strategy: f.Strategy, Message: text, Location: f.Location,
	})
}

// open lists the open faults in a fixed order.
func (ps *pass) open() []Key { return slices.SortedFunc(maps.Keys(ps.m.Open), Key.compare) }

// remember takes the reading into the memory.
func (ps *pass) remember() {
	for _, d := range ps.r.Devices {
		before := ps.m.Cards[d.Location]
		c := Card{
			Name: d.Name, GUID: d.GUID, Layer: d.Layer(), Driver: d.Driver, Driverless: before.Driverless,
			CharDevice: d.CharDevice || before.CharDevice, Ports: copied(before.Ports),
		}
		if active, _ := d.ActivePorts(); active < len(d.Ports) || len(d.Ports) == 0 {
			c.Alone = before.Alone
		}
		if c.GUID == "" {
			c.GUID = before.GUID
		}
		if c.Driver == "" {
			c.Driver = before.Driver
		}
		if len(d.Ports) == 0 && before.Layer != "" {
			c.Layer = before.Layer
		}
		for _, p := range d.Ports {
			link := c.Ports[p.Number]
			link.Active = link.Active || p.State == Active
			c.Ports[p.Number] = link
		}
		ps.m.Cards[d.Location] = c
	}
}
