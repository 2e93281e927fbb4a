// Package kubelet tells whether a node's kubelet is alive, by what it writes: the Lease of
// its node or, where there is none, the heartbeat of the Ready condition. The condition
// alone does not tell: it stays True when the machine dies and nobody sets it to Unknown.
// No clock of a node is read. What counts is that a value changed between two reads.
package kubelet

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is what is known of a kubelet.
type State int

// States; the zero value is Unknown.
const (
	// Unknown: it was not watched for long enough.
	Unknown State = iota
	// Alive: it wrote while it was watched, within the last minute.
	Alive
	// Silent: it wrote nothing for as long as it was watched.
	Silent
)

// Life is what is known of a kubelet at one moment.
type Life struct {
	State State
	// Until is when an Unknown kubelet is Silent, if it writes nothing; zero otherwise.
	Until time.Time
}

// Beat is what a kubelet wrote last.
type Beat struct {
	// Node is the uid of the Node: another one is another kubelet.
	Node types.UID
	// Value is another one after each write.
	Value string
	// Within is the time in which a kubelet that is alive writes again.
	Within time.Duration
}

const (
	// fresh is how long a write that was seen proves a kubelet alive.
	fresh = time.Minute
	// LookAgain is the time after which a kubelet should be looked at again while its
	// state matters: a Lease is renewed every 10 s.
	LookAgain = 15 * time.Second
)

// Watch is what the reads of one kubelet's beat showed. The zero value has seen none.
type Watch struct {
	// Gap is the longest time between two reads after which another value proves the
	// kubelet alive; a minute if it is less.
	Gap time.Duration

	beat Beat
	// since is the first of an unbroken row of reads, read the last one, and changed the
	// last one that found another value than the one before it.
	since, read, changed time.Time
}

// See adds a read. A change that was found after a longer gap may be as old as that: it
// begins the watch anew. Without a change the kubelet was silent, however long the gap was.
func (w Watch) See(b Beat, now time.Time) Watch {
	gap := now.Sub(w.read)
	changed := w.beat.Value != b.Value
	switch {
	case w.beat.Node != b.Node || w.beat.Within != b.Within || gap < 0 || changed && gap > max(w.Gap, fresh):
		return Watch{Gap: w.Gap, beat: b, since: now, read: now}
	case changed:
		w.beat, w.changed = b, now
	}
	w.read = now
	return w
}

// Life is what the reads tell.
func (w Watch) Life(now time.Time) Life {
	last := w.since
	if w.changed.After(last) {
		last = w.changed
	}
	until := last.Add(w.beat.Within)
	switch {
	case !w.changed.IsZero() && now.Sub(w.changed) <= fresh:
		return Life{State: Alive}
	case now.Before(until):
		return Life{State: Unknown, Until: until}
	}
	return Life{State: Silent}
}
