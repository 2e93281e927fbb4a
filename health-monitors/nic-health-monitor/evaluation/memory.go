// Package evaluation decides what the facts about a node's network cards mean: which
// faults began and which ended. It compares what is seen with what is remembered,
// does no I/O and reads no clock.
package evaluation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Key names one fault: a check, a card by its name, a port of it (empty: the
// card as a whole), and an error code.
type Key struct{ Check, Device, Port, Code string }

// MarshalText makes a key of a JSON object.
func (k Key) MarshalText() ([]byte, error) {
	return []byte(strings.Join([]string{k.Check, k.Device, k.Port, k.Code}, "|")), nil
}

// UnmarshalText reads what MarshalText wrote.
func (k *Key) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), "|")
	if len(parts) != 4 {
		return fmt.Errorf("%q is not a fault key", text)
	}
	*k = Key{parts[0], parts[1], parts[2], parts[3]}
	return nil
}

func (k Key) compare(o Key) int {
	return slices.Compare([]string{k.Device, k.Port, k.Check, k.Code}, []string{o.Device, o.Port, o.Check, o.Code})
}

// Memory is what must survive the process: what was seen, and what was reported.
type Memory struct {
	// Boot is the boot that was seen last, Since the first look at it.
	Boot  string    `json:"boot"`
	Since time.Time `json:"since"`
	// Cards holds every card that was seen, by its location.
	Cards map[string]Card `json:"cards,omitempty"`
	// Open holds the faults that were reported and have not ended.
	Open map[Key]Fault `json:"open,omitempty"`

	// trials are on their way to a verdict. A restart begins them again.
	trials map[Key]trial
}

// Card is what is remembered of a card.
type Card struct {
	Name  string `json:"name"`
	GUID  string `json:"guid,omitempty"`
	Layer Layer  `json:"layer"`
	// Driver is the name of its driver, empty when it was never known.
	Driver string `json:"driver,omitempty"`
	// Driverless is the last look at which its driver was away.
	Driverless time.Time `json:"driverless,omitzero"`
	// CharDevice: it had one.
	CharDevice bool `json:"charDevice,omitempty"`
	// Alone: a person accepted that it has fewer active ports than its peers.
	Alone bool            `json:"alone,omitempty"`
	Ports map[string]Link `json:"ports,omitempty"`
}

// Link is what is remembered of a port.
type Link struct {
	// Active: it was once.
	Active bool `json:"active,omitempty"`
	// Courses holds the values of counters, by the rule that watches them.
	Courses map[string]Course `json:"courses,omitempty"`
}

// Fault is what was reported about a key.
type Fault struct {
	// Location and GUID are those of the card.
	Location string `json:"place"`
	GUID     string `json:"guid,omitempty"`
	// Boot is the boot under which it was reported last.
	Boot     string          `json:"boot"`
	Strategy record.Strategy `json:"strategy"`
	// Counted: a counter made it.
	Counted bool `json:"counted,omitempty"`
	// Last is when its counter was over the bound last.
	Last time.Time `json:"last,omitzero"`
	// Want is the number of active ports that its peers had.
	Want int `json:"want,omitempty"`
	// IDs are those of the events that reported it, by which a person may name it.
	IDs []string `json:"ids,omitempty"`
}

// trial is a verdict that is not ripe yet.
type trial struct {
	bad, long bool
	since     time.Time
	polls     int
}

// maxIDs bounds the events that are remembered of a fault.
const maxIDs = 16

// Decode reads a memory; none is the memory of a node's first look.
func Decode(data []byte) (Memory, error) {
	var m Memory
	if len(data) > 0 {
		if err := json.Unmarshal(data, &m); err != nil {
			return Memory{}, fmt.Errorf("decoding the state: %w", err)
		}
	}
	return m.Clone(), nil
}

// Encode is what Decode reads.
func (m Memory) Encode() ([]byte, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	return data, nil
}

// Clone copies the memory.
func (m Memory) Clone() Memory {
	m.Cards, m.Open, m.trials = copied(m.Cards), copied(m.Open), copied(m.trials)
	for location, c := range m.Cards {
		c.Ports = copied(c.Ports)
		for number, l := range c.Ports {
			l.Courses = copied(l.Courses)
			c.Ports[number] = l
		}
		m.Cards[location] = c
	}
	return m
}

// ChangedSince reports whether the memory has more to keep than another one, but for the
// values of counters.
func (m Memory) ChangedSince(than Memory) bool {
	if m.Boot != than.Boot || len(m.Cards) != len(than.Cards) || len(m.Open) != len(than.Open) {
		return true
	}
	for location, c := range m.Cards {
		before := than.Cards[location]
		if c.Name != before.Name || c.GUID != before.GUID || c.Layer != before.Layer || c.CharDevice != before.CharDevice {
			return true
		}
		for number, l := range c.Ports {
			if l.Active != before.Ports[number].Active {
				return true
			}
		}
	}
	return false
}

// Name adds the id of an event that reported a fault.
func (m *Memory) Name(k Key, id string) {
	f, open := m.Open[k]
	if !open {
		return
	}
	if f.IDs = append(slices.Clone(f.IDs), id); len(f.IDs) > maxIDs {
		f.IDs = slices.Delete(f.IDs, 1, 2)
	}
	m.Open[k] = f
}

// Forget drops the faults that a person cleared, by the ids of their events, with the facts
// behind them: a port is reported as down again only after it was active, a card as gone
// only after it was there, and as having fewer active ports than its peers only after all
// of its ports were active, also if the cleared fault was that one of them is down. It
// returns the dropped keys.
func (m *Memory) Forget(cleared func(ids []string) bool) []Key {
	var gone []Key
	for k, f := range m.Open {
		if !cleared(f.IDs) {
			continue
		}
		gone = append(gone, k)
		delete(m.Open, k)
		delete(m.trials, k)
		card, known := m.Cards[f.Location]
		switch {
		case !known:
		case k.Code == CodeGone:
			delete(m.Cards, f.Location)
		case k.Code == CodeNoCharDevice:
			card.CharDevice = false
			m.Cards[f.Location] = card
		case k.Code == CodeFewerPorts:
			card.Alone = true
			m.Cards[f.Location] = card
		case k.Port != "" && !f.Counted:
			link := card.Ports[k.Port]
			link.Active = false
			card.Ports[k.Port] = link
			card.Alone = true // else the comparison with its peers reports the same port
			m.Cards[f.Location] = card
		}
	}
	slices.SortFunc(gone, Key.compare)
	return gone
}

// copied is a copy that can be written, of no map too.
func copied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}
