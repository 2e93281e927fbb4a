package sqlstore

import (
	"slices"
	"strings"
	"sync"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// Cause is what a wake-up carries about what was written.
type Cause struct {
	// By is who changed records; nobody has, if they were appended.
	By record.Writer
	// Quarantined and Eviction are values that some of them have now.
	Quarantined record.Quarantine
	Eviction    record.Eviction
}

// Causes that are not of an update.
var (
	// Appended records bear no status.
	Appended = Cause{}
	// Anything may have been written by anybody.
	Anything = Cause{By: "*"}
)

// String is the cause as it travels from process to process.
func (c Cause) String() string {
	if c == Appended {
		return ""
	}
	return strings.Join([]string{string(c.By), string(c.Quarantined), string(c.Eviction)}, separator)
}

// separator is in no name of an enumeration.
const separator = "/"

// ParseCause reads what String wrote. What another version wrote otherwise is Anything.
func ParseCause(text string) Cause {
	parts := strings.Split(text, separator)
	switch {
	case text == "":
		return Appended
	case len(parts) != 3:
		return Anything
	}
	return Cause{record.Writer(parts[0]), record.Quarantine(parts[1]), record.Eviction(parts[2])}
}

// Signal wakes its subscribers; the zero value is ready.
type Signal struct {
	mu   sync.Mutex
	subs map[retry.Wake]func(Cause) bool
}

// Subscribe returns a channel that holds a token after every wake-up since it was
// last read that the subscriber heeds, and the function that ends the subscription.
// heeds must not block.
func (s *Signal) Subscribe(heeds func(Cause) bool) (<-chan struct{}, func()) {
	ch := retry.NewWake()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs == nil {
		s.subs = map[retry.Wake]func(Cause) bool{}
	}
	s.subs[ch] = heeds
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, ch)
	}
}

// Notify wakes every subscriber that heeds one of the causes; it never blocks.
func (s *Signal) Notify(causes ...Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch, heeds := range s.subs {
		if !slices.ContainsFunc(causes, heeds) {
			continue
		}
		ch.Call()
	}
}

// cause is why feeds are woken when a record was changed.
func cause(writer record.Writer, after record.Record) Cause {
	return Cause{By: writer, Quarantined: after.Status.NodeQuarantined, Eviction: after.Status.UserPodsEvictionStatus.Status}
}

// causes are those of a batch, each once.
func causes(writer record.Writer, after []record.Record) (out []Cause) {
	for _, r := range after {
		if c := cause(writer, r); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// heeds reports whether a write is to wake the feed: one that may have made a record
// that it selects, and is not its own consumer's. What it does not heed it delivers
// with what it heeds next, or when it polls.
func (f *feed) heeds(c Cause) bool {
	switch c {
	case Anything:
		return true
	case Appended:
		return f.Kind == provider.Inserts || may(f.selector, c)
	}
	return f.Kind == provider.Changes && string(c.By) != f.Name && may(f.selector, c)
}

// may reports whether a selector may match a record that a cause describes.
func may(s record.Selector, c Cause) bool {
	known := record.Status{NodeQuarantined: c.Quarantined, UserPodsEvictionStatus: record.EvictionStatus{Status: c.Eviction}}
	return record.Selector{Quarantined: s.Quarantined, Evictions: s.Evictions}.Matches(record.Record{Status: known}) &&
		(len(s.Any) == 0 || slices.ContainsFunc(s.Any, func(a record.Selector) bool { return may(a, c) }))
}
