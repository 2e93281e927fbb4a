package consume

import (
	"math"
	"time"
)

// How many deaths it takes.
const (
	// carefulAfter lives in a row that ended early make the next one careful.
	carefulAfter = 2
	// FatalDeaths in a row with one and the same record alone in flight have it
	// set aside.
	FatalDeaths = 3

	// CalmAfter is how long a process lives until its death has nothing to do
	// with its start; the kubelet forgets its back-off after as long.
	CalmAfter = 10 * time.Minute
	// A key that was in flight at deaths waits in the next lives, twice as long
	// after each further death, and never as long as it takes to be calm.
	minRest, maxRest = 2 * time.Second, 5 * time.Minute

	// A record that was in flight at the last death is tried at another time of
	// each life, within so many times as long as a note takes, and within minSpread
	// at least.
	spread    = 20
	minSpread = 10 * time.Second
)

// Flight is what a process works on, alone: a key, or one record of it. The zero
// value is nothing.
type Flight struct {
	Key    string `json:"key,omitempty"`
	Record string `json:"record,omitempty"`
}

// Past is what a loop remembers of the lives of its process before this one,
// in all replicas. The zero value is a past without deaths.
type Past struct {
	// Starts counts the lives in a row, with the present one, that ended neither
	// by a stop nor after CalmAfter.
	Starts int `json:"starts"`
	// InFlight is what was being worked on when this was written.
	InFlight Flight `json:"inFlight,omitzero"`
	// Suspect was in flight at each of the last Deaths deaths, and its key at each
	// of the last KeyDeaths.
	Suspect   Flight `json:"suspect,omitzero"`
	Deaths    int    `json:"deaths,omitempty"`
	KeyDeaths int    `json:"keyDeaths,omitempty"`
	// Deep says that a careful life ended with nothing in flight: in the next one
	// the reading of each delivery is in flight too.
	Deep bool `json:"deep,omitempty"`
}

// Careful says that the lives before this one ended early.
func (p Past) Careful() bool { return p.Starts > carefulAfter }

// Next is the past of a life that begins now, and the record that has to be set
// aside before, if there is one. Only what was alone in flight is ever suspected,
// and a death with something else in flight, or nothing, frees it.
func (p Past) Next() (now Past, fatal Flight) {
	now = Past{Starts: p.Starts + 1}
	if !now.Careful() {
		return now, Flight{}
	}
	now.Deep = p.Deep
	switch {
	case p.InFlight == Flight{}:
		// The first careful life begins with nothing in flight before it.
		now.Deep = p.Deep || p.Careful()
		return now, Flight{}
	case p.InFlight == p.Suspect:
		now.Suspect, now.Deaths, now.KeyDeaths = p.Suspect, p.Deaths+1, p.KeyDeaths+1
	case p.InFlight.Key == p.Suspect.Key:
		now.Suspect, now.Deaths, now.KeyDeaths = p.InFlight, 1, p.KeyDeaths+1
	default:
		now.Suspect, now.Deaths, now.KeyDeaths = p.InFlight, 1, 1
	}
	if now.Suspect.Record != "" && now.Deaths >= FatalDeaths {
		return Past{Starts: now.Starts, Deep: now.Deep}, now.Suspect
	}
	return now, Flight{}
}

// rest is how long a key waits in a life of this past: others go first.
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

// Pause is how long the try of a record waits in a life of this past, when a note
// takes so long. A record stays noted until the note after its try is written, and
// a process that dies of something else at the same time of each life would find
// the same record noted each time, if that is tried at the same time of each.
func (p Past) Pause(record string, note time.Duration) time.Duration {
	if record == "" || record != p.Suspect.Record {
		return 0
	}
	_, part := math.Modf(golden * float64(p.Starts))
	return time.Duration(part * float64(max(minSpread, spread*note)))
}
