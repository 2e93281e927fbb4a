package reconciler

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Reconciler is the queue of the monitor's publisher.
var _ report.Queue = (*Reconciler)(nil)

// ofProvider stands for the provider's own document among the ids.
const ofProvider = ""

// queue orders what waits to be reported.
type queue struct {
	last    uint64
	entries []entry
	changed chan struct{}
}

// entry is an event that waits in a document.
type entry struct {
	seq     uint64
	id      string // of the maintenance, or ofProvider
	eventID string // id of the event
}

// waiting is what the document of an id has to report.
func (r *Reconciler) waiting(id string) *maintenance.Waiting {
	if id == ofProvider {
		if u := r.provider.Unreachable; u != nil {
			return u.Waiting
		}
		return nil
	}
	return r.mirror[id].Waiting
}

// enqueue brings the queue in line with the documents. What waits already keeps its
// place.
func (r *Reconciler) enqueue() {
	placed := map[string]bool{}
	kept := r.queue.entries[:0:0]
	for _, x := range r.queue.entries {
		if w := r.waiting(x.id); w != nil && w.Event.ID == x.eventID {
			kept = append(kept, x)
			placed[x.id] = true
		}
	}
	changed := len(kept) != len(r.queue.entries)
	for _, id := range append([]string{ofProvider}, slices.Sorted(maps.Keys(r.mirror))...) {
		if w := r.waiting(id); w != nil && !placed[id] {
			r.queue.last++
			kept = append(kept, entry{r.queue.last, id, w.Event.ID})
			changed = true
		}
	}
	r.queue.entries = kept
	if changed {
		close(r.queue.changed)
		r.queue.changed = make(chan struct{})
	}
}

// Peek returns the oldest events that are stored.
func (r *Reconciler) Peek(after uint64, count, bytes int) ([]report.Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mirror == nil {
		return nil, nil // nothing was read yet
	}
	if err := r.load(r.ctx); err != nil {
		return nil, err
	}
	var out []report.Entry
	size := 0
	for _, x := range r.queue.entries {
		if x.seq <= after {
			continue
		}
		event := record.ToProto(r.waiting(x.id).Event)
		if size += proto.Size(event); len(out) == count || size > bytes && len(out) > 0 {
			break
		}
		out = append(out, report.Entry{Seq: x.seq, Added: event.GetGeneratedTimestamp().AsTime(), Event: event})
	}
	return out, nil
}

// Remove updates the documents whose events were acknowledged. Until that is stored the
// same events are sent again under the same ids.
func (r *Reconciler) Remove(seqs ...uint64) error {
	return r.settle(seqs, lifecycle.Acknowledge)
}

// Bury ends the document whose event was refused for good; the publisher has logged
// it.
func (r *Reconciler) Bury(seq uint64, reason string) error {
	if reason == "" {
		return fmt.Errorf("dead-lettering event %d: the reason is missing", seq)
	}
	return r.settle([]uint64{seq}, lifecycle.Refuse)
}

// Changed is closed when other events wait.
func (r *Reconciler) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.changed
}
