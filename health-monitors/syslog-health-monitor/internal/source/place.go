package source

import "github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"

// kmsgCursor is a place in the kernel's ring.
type kmsgCursor struct {
	Boot string `json:"boot"`
	// Next is the seq of the next record to read.
	Next uint64 `json:"next"`
	// Usec is the time since boot of the record before Next. It is nil if no record was
	// read, and in a state that an earlier version wrote.
	Usec *uint64 `json:"usec,omitempty"`
}

// recordIs is the result of the comparison of a record with a place.
type recordIs int

const (
	recordNew recordIs = iota
	// recordAlreadyRead was read before.
	recordAlreadyRead
	// recordOfAnotherRing has the number of the record that was read last, and another
	// time. The kernel never changes the time of a record.
	recordOfAnotherRing
)

// compare compares a record with the place.
func (c kmsgCursor) compare(r kernellog.Record) recordIs {
	switch {
	case r.Seq >= c.Next:
		return recordNew
	case r.Seq == c.Next-1 && c.Usec != nil && *c.Usec != r.Usec:
		return recordOfAnotherRing
	}
	return recordAlreadyRead
}

// beyond reports whether the place is beyond the end of a ring that was read until there was
// no further record; tip is the seq after its last record, 0 if there was none. A ring
// overwrites its oldest records first, so it always has the newest record that was read from
// it, or newer ones. A ring without a record proves nothing.
func (c kmsgCursor) beyond(tip uint64) bool { return tip > 0 && tip < c.Next }
