package journal

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/internal/report"
)

// Journal is the queue of the monitor's publisher.
var _ report.Queue = (*Journal)(nil)

// Peek returns the oldest events that are written.
func (j *Journal) Peek(count, bytes int) ([]report.Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []report.Entry
	size := 0
	for _, w := range j.book.Waiting() {
		if size += proto.Size(w.Event); w.Seq > j.durable || len(out) == count || size > bytes && len(out) > 0 {
			break
		}
		out = append(out, report.Entry{Seq: w.Seq, Added: w.Event.GeneratedTimestamp.AsTime(), Event: w.Event})
	}
	return out, nil
}

// Remove takes acknowledged events out. Until that is written, a new leader
// sends them again under the ids that the store knows.
func (j *Journal) Remove(seqs ...uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.book.Remove(seqs...)
	j.touch()
	return nil
}

// Bury drops an event that was refused for good; the publisher has logged it.
func (j *Journal) Bury(seq uint64, reason string) error {
	if reason == "" {
		return fmt.Errorf("burying event %d: there is no reason", seq)
	}
	return j.Remove(seq)
}

// Changed is closed when further events are written.
func (j *Journal) Changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed
}
