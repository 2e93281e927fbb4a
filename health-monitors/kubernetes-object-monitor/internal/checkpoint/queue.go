package checkpoint

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/internal/report"
)

// Checkpoint is the queue of the monitor's publisher.
var _ report.Queue = (*Checkpoint)(nil)

// Peek returns the oldest events behind a seq that are written.
func (c *Checkpoint) Peek(after uint64, count, bytes int) ([]report.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []report.Entry
	size := 0
	for _, w := range c.tracker.Waiting() {
		if w.Seq <= after {
			continue
		}
		if size += proto.Size(w.Event); w.Seq > c.durable || len(out) == count || size > bytes && len(out) > 0 {
			break
		}
		out = append(out, report.Entry{Seq: w.Seq, Added: w.Event.GeneratedTimestamp.AsTime(), Event: w.Event})
	}
	return out, nil
}

// Remove takes acknowledged events out. Until that is written, a new leader
// sends them again under the ids that the store knows.
func (c *Checkpoint) Remove(seqs ...uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracker.Remove(seqs...)
	c.touch()
	return nil
}

// Bury makes an event that was rejected for good a dead letter.
func (c *Checkpoint) Bury(seq uint64, reason string) error {
	if reason == "" {
		return fmt.Errorf("dead-lettering event %d: the reason is missing", seq)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.tracker.Waiting() {
		if w.Seq == seq {
			c.dead = c.dead.with(w.Event, reason, c.Clock.Now())
		}
	}
	if of, known := c.tracker.Reject(seq); known {
		c.rejected.add(of, c.Clock.Now())
	}
	c.touch()
	return nil
}

// Changed is closed when further events are written.
func (c *Checkpoint) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}
