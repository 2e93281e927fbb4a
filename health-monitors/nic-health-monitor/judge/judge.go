package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Codes of faults that no counter tells.
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
	// Looks and Persist are how often in a row, and for how long, a link or card
	// must be in trouble.
	Looks   int
	Persist time.Duration
	// Reload is how long all cards of a driver may be away at once.
	Reload time.Duration
	// Steady is how long it must be well again.
	Steady time.Duration
	// Settle is how long after the first look of a boot, and after their driver was
	// away, nothing is told of links and cards: they come up one by one.
	Settle time.Duration
	// Quiet is how long a counter must stay within its bound for its fault to end;
	// a fatal one ends only when the counter is set back or the node has rebooted.
	Quiet    time.Duration
	Counters []Counter
}

// Reason says why a fault began or ended.
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

// Told is one event: a fault begins or, healthy, ends.
type Told struct {
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

// sight is what a look says of one key.
type sight struct {
	bad      bool
	fatal    bool
	action   record.Action
	text     string
	location string
	guid     string
	// now: it needs no trial; patience: it needs a long one.
	now      bool
	patience bool
	reason   Reason
	counted  bool
	want     int
}

// look is one reading on its way to a verdict.
type look struct {
	m Memory
	r Reading
	p Policy
	// seen holds what is known of a key; what is not in it is unknown.
	seen map[Key]sight
	told []Told
}

// Judge compares a reading with the memory: it returns the memory of the next
// look, and what is to be told, in a fixed order. What could not be read begins
// nothing and ends nothing.
func Judge(m Memory, r Reading, p Policy) (Memory, []Told) {
	l := &look{m: m.Clone(), r: r, p: p, seen: map[Key]sight{}}
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
	l.gone()
	l.peers()
	l.retired()
	l.verdicts()
	l.remember()
	return l.m, l.told
}

// turn begins a boot: counters begin anew, and what they told is over.
func (l *look) turn() {
	l.m.Boot, l.m.Since = l.r.Boot, l.r.At
	clear(l.m.trials)
	for location, c := range l.m.Cards {
		for number, link := range c.Ports {
			link.Courses = nil
			c.Ports[number] = link
		}
		l.m.Cards[location] = c
	}
	for _, k := range l.open() {
		if l.m.Open[k].Counted {
			l.end(k, Rebooted, "the node has rebooted")
		}
	}
}

// setBack takes remembered times that are yet to come, of a clock that was set
// back since, for now: nothing waits for it to catch up.
func (l *look) setBack() {
	if l.r.At.Before(l.m.Since) {
		l.m.Since = l.r.At
	}
	for location, c := range l.m.Cards {
		if l.r.At.Before(c.Driverless) {
			c.Driverless = l.r.At
			l.m.Cards[location] = c
		}
	}
	for k, f := range l.m.Open {
		if l.r.At.Before(f.Last) {
			f.Last = l.r.At
			l.m.Open[k] = f
		}
	}
}

// forgetUnwatched ends what was told of cards that are not watched any more: one
// that was left out, or has got the node's default route, is not gone. Nor is one
// without a PCI address, which has its name for a location: software made it.
func (l *look) forgetUnwatched() {
	away := slices.Clone(l.r.Unwatched)
	for location, c := range l.m.Cards {
		if _, there := l.r.Card(location); !there && location == c.Name {
			away = append(away, location)
		}
	}
	for _, location := range away {
		delete(l.m.Cards, location)
	}
	for _, k := range l.open() {
		if slices.Contains(away, l.m.Open[k].Location) {
			l.end(k, Unwatched, "the card is no longer watched")
		}
	}
}

// endMoved ends the faults of cards that were replaced or have another name, and
// forgets cards that were replaced.
func (l *look) endMoved() {
	for location, c := range l.m.Cards {
		if d, there := l.r.Card(location); there && d.GUID != "" && c.GUID != "" && d.GUID != c.GUID {
			delete(l.m.Cards, location)
		}
	}
	for _, k := range l.open() {
		f := l.m.Open[k]
		d, there := l.r.Card(f.Location)
		switch {
		case !there:
		case d.GUID != "" && f.GUID != "" && d.GUID != f.GUID:
			l.end(k, Replaced, "another card is at "+f.Location)
		case d.Name != k.Device:
			l.end(k, Renamed, "the card at "+f.Location+" is "+d.Name+" now")
		}
	}
}

// verdicts lets what is seen ripen.
func (l *look) verdicts() {
	for k := range l.m.trials {
		if _, known := l.seen[k]; !known {
			delete(l.m.trials, k)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.seen), Key.compare) {
		s := l.seen[k]
		f, open := l.m.Open[k]
		if due := s.bad != open || s.bad && (f.Boot != l.m.Boot || l.raised(f)); !due {
			delete(l.m.trials, k)
			continue
		}
		if !s.now && !l.ripe(k, s) {
			continue
		}
		delete(l.m.trials, k)
		if s.bad {
			l.begin(k, s)
		} else {
			l.end(k, s.reason, s.text)
		}
	}
}

// ripe counts the look and says whether it was seen so for long enough.
func (l *look) ripe(k Key, s sight) bool {
	t, begun := l.m.trials[k]
	if !begun || t.bad != s.bad || t.patience != s.patience || l.r.At.Before(t.since) {
		t = trial{bad: s.bad, patience: s.patience, since: l.r.At}
	}
	t.looks++
	l.m.trials[k] = t
	enough := l.p.Steady
	switch {
	case s.patience:
		enough = l.p.Reload
	case s.bad:
		enough = l.p.Persist
	}
	settling := l.m.Since
	if back := l.m.Cards[s.location].Driverless; !s.patience && back.After(settling) {
		settling = back
	}
	settled := !s.bad || l.r.At.Sub(settling) >= l.p.Settle
	return settled && t.looks >= l.p.Looks && l.r.At.Sub(t.since) >= enough
}

// raised says whether a fault was told so that nobody acts on it, and would be
// told otherwise now.
func (l *look) raised(f Fault) bool {
	return f.Strategy == record.PersistOnly && l.p.Strategy == record.Process
}

// begin tells a fault. One that was told under a past boot is told again: that
// it outlasted the reboot is news. So is one on which nobody acted yet.
func (l *look) begin(k Key, s sight) {
	reason := Began
	strategy := l.p.Strategy
	before, open := l.m.Open[k]
	switch {
	case open && before.Boot == l.m.Boot:
		reason = Processed
	case open:
		reason = Outlasted
	}
	if open && before.Strategy == record.Process {
		strategy = record.Process // else its end could not clear what PROCESS told
	}
	guid := cmp.Or(s.guid, l.m.Cards[s.location].GUID) // the card's also where it can not be read now
	l.m.Open[k] = Fault{
		Location: s.location, GUID: guid, Boot: l.m.Boot, Strategy: strategy, Counted: s.counted, Last: l.lastOf(s), Want: s.want, IDs: before.IDs,
	}
	l.told = append(l.told, Told{
		Key: k, Reason: reason, Fatal: s.fatal, Action: s.action, Strategy: l.p.Strategy, Message: s.text, Location: s.location,
	})
}

func (l *look) lastOf(s sight) time.Time {
	if s.counted {
		return l.r.At
	}
	return time.Time{}
}

// end tells that a fault is over, under the strategy that it was told under.
func (l *look) end(k Key, reason Reason, text string) {
	f := l.m.Open[k]
	delete(l.m.Open, k)
	delete(l.m.trials, k)
	l.told = append(l.told, Told{
		Key: k, Reason: reason, Healthy: true, Action: record.ActionNone, Strategy: f.Strategy, Message: text, Location: f.Location,
	})
}

// open lists the open faults in a fixed order.
func (l *look) open() []Key { return slices.SortedFunc(maps.Keys(l.m.Open), Key.compare) }

// remember takes the reading into the memory.
func (l *look) remember() {
	for _, d := range l.r.Devices {
		before := l.m.Cards[d.Location]
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
		l.m.Cards[d.Location] = c
	}
}
