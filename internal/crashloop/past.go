package crashloop

import (
	"math"
	"time"
)

// How many crashes it takes.
const (
	// isolateAfter starts in a row that ended early make the next one work in isolation.
	isolateAfter = 2
	// PoisonDeaths in a row with one and the same record alone in flight have it
	// set aside.
	PoisonDeaths = 3

	// StableAfter is how long a process runs until a crash has nothing to do
	// with its start; the kubelet forgets its back-off after as long.
	StableAfter = 10 * time.Minute
	// A key that was in flight at crashes waits after the next starts, twice as long
	// after each further crash, and never as long as it takes to be stable.
	minRest, maxRest = 2 * time.Second, 5 * time.Minute

	// A record that was in flight at the last crash is tried at another time after
	// each start, within so many times as long as a note takes, and within minSpread
	// at least.
	spread    = 20
	minSpread = 10 * time.Second
)

// Work is what a process works on, alone: a key, or one record of it. The zero
// value is nothing.
type Work struct {
	Key    string `json:"key,omitempty"`
	Record string `json:"record,omitempty"`
}

// Past is what is remembered of the starts of a process before this one, in all
// replicas. The zero value is a past without crashes.
type Past struct {
	// Starts counts the starts in a row, with the present one, that ended neither
	// by a stop nor after StableAfter.
	Starts int `json:"starts"`
	// InFlight is what was being worked on when this was written.
	InFlight Work `json:"inFlight,omitzero"`
	// Suspect was in flight at each of the last Deaths crashes, and its key at each
	// of the last KeyDeaths.
	Suspect   Work `json:"suspect,omitzero"`
	Deaths    int  `json:"deaths,omitempty"`
	KeyDeaths int  `json:"keyDeaths,omitempty"`
	// Deep says that a process in isolation mode crashed with nothing in flight: the
	// next one has the reading of each delivery in flight, too.
	Deep bool `json:"deep,omitempty"`
}

// Isolates says that the process works in isolation mode, because it crashed early
// again and again.
func (p Past) Isolates() bool { return p.Starts > isolateAfter }

// Next is the past of a process that starts now, and the poison record that has to be
// set aside before, if there is one. Only what was alone in flight is ever suspected,
// and a crash with something else in flight, or nothing, frees it.
func (p Past) Next() (now Past, poison Work) {
	now = Past{Starts: p.Starts + 1}
	if !now.Isolates() {
		return now, Work{}
	}
	now.Deep = p.Deep
	switch {
	case p.InFlight == Work{}:
		// The first process in isolation mode starts with nothing in flight before it.
		now.Deep = p.Deep || p.Isolates()
		return now, Work{}
	case p.InFlight == p.Suspect:
		now.Suspect, now.Deaths, now.KeyDeaths = p.Suspect, p.Deaths+1, p.KeyDeaths+1
	case p.InFlight.Key == p.Suspect.Key:
		now.Suspect, now.Deaths, now.KeyDeaths = p.InFlight, 1, p.KeyDeaths+1
	default:
		now.Suspect, now.Deaths, now.KeyDeaths = p.InFlight, 1, 1
	}
	if now.Suspect.Record != "" && now.Deaths >= PoisonDeaths {
		return Past{Starts: now.Starts, Deep: now.Deep}, now.Suspect
	}
	return now, Work{}
}

// rest is how long a key waits after a start of this past: others go first.
func (p Past) rest(key string) time.Duration {
	if key == "" || key != p.Suspect.Key {
		return 0
	}
	d := minRest
	for n := 1; n < p.KeyDeaths && d < maxRest; n++ {
		d *= 2
	}
	return min(d, maxRest)
}

// golden is the fraction whose multiples, taken modulo 1, keep farthest apart: any
// two of three in a row by more than a fifth.
const golden = 0.6180339887498949

// pause is how long the try of a record waits after a start of this past, when a note
// takes so long. A record stays noted until the note after its try is written, and
// a process that crashes for another reason so long after each start would find the
// same record noted each time, if that is tried at the same time after each.
func (p Past) pause(record string, note time.Duration) time.Duration {
	if record == "" || record != p.Suspect.Record {
		return 0
	}
	_, part := math.Modf(golden * float64(p.Starts))
	return time.Duration(part * float64(max(minSpread, spread*note)))
}
