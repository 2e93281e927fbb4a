package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/store-client/store"
)

// idleCheckpointInterval is how often a feed with nothing to deliver stores how far it has
// looked: a restart does not look again, and no history passes it by.
const idleCheckpointInterval = time.Minute

// Lines is the part of a store that consumers stand on.
type Lines interface {
	// Line reads a consumer's line; without one it is the zero Line.
	Line(ctx context.Context, consumer string) (Line, error)
	// Swap writes a consumer's line if the stored one has still the text of old, or,
	// where old is the zero Line, if there is none; it reports whether it did.
	Swap(ctx context.Context, consumer string, old, with Line) (bool, error)
	// Server names the history that positions belong to now.
	Server(ctx context.Context) (string, error)
	// Dead keeps a dead letter.
	Dead(ctx context.Context, deadLetter store.DeadLetter) error
}

// Consumer is one consumer of a store. Commit may be called while others are.
type Consumer[P Position[P]] struct {
	Name    string
	Kind    Kind
	Lines   Lines
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics

	// rested is when Idle last returned true.
	rested time.Time

	mu                   sync.Mutex
	delivered, committed string
}

// Deliver notes that a record is handed out, of which the store has known since a
// time, and gives its position as text.
func (c *Consumer[P]) Deliver(p P, since time.Time) string {
	c.Metrics.Lag.WithLabelValues(c.Name).Set(max(0, c.Clock.Since(since).Seconds()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delivered = PositionText(p)
	return c.delivered
}

// Idle notes that there is nothing to deliver, and reports whether to store how far the
// feed has looked: now and then, when everything delivered is committed.
func (c *Consumer[P]) Idle() bool {
	c.Metrics.Lag.WithLabelValues(c.Name).Set(0)
	now := c.Clock.Now()
	if c.rested.IsZero() {
		c.rested = now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delivered != c.committed || now.Sub(c.rested) < idleCheckpointInterval {
		return false
	}
	c.rested = now
	return true
}

// Bury keeps a document that cannot be decoded as a dead letter, counts and passes it.
func (c *Consumer[P]) Bury(ctx context.Context, d Document) error {
	deadLetter := d.DeadLetter("feed of " + c.Name)
	deadLetter.At = c.Clock.Now()
	if err := c.Lines.Dead(ctx, deadLetter); err != nil {
		return err
	}
	c.Metrics.Undecodable.WithLabelValues(c.Name).Inc()
	c.Log.Error("undecodable record skipped", "consumer", c.Name, "record", deadLetter.ID, "error", deadLetter.Reason)
	return nil
}

// Commit is that of store.Feed; it never goes backwards.
func (c *Consumer[P]) Commit(ctx context.Context, text string) error {
	p, err := ParsePosition[P](text)
	if k := p.Common().Kind; err == nil && k != c.Kind {
		err = fmt.Errorf("%w: it belongs to feed kind %s", ErrPosition, k)
	}
	if err == nil {
		err = c.Store(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("committing the position of %s: %w", c.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = text
	return nil
}

// Store writes a position unless the stored one is further, or p is of a history
// that is no longer there.
func (c *Consumer[P]) Store(ctx context.Context, p P) error {
	ctx, cancel := context.WithTimeout(ctx, OperationTimeout)
	defer cancel()
	for {
		l, err := c.Lines.Line(ctx, c.Name)
		if err != nil {
			return err
		}
		late, err := c.late(ctx, p, l)
		if err != nil || late {
			return err
		}
		if done, err := c.Lines.Swap(ctx, c.Name, l, next(l, p)); err != nil || done {
			return err
		}
	}
}

// late reports whether p may not replace what is stored.
func (c *Consumer[P]) late(ctx context.Context, p P, l Line) (bool, error) {
	old, err := ParsePosition[P](l.Text)
	a, b := p.Common(), old.Common()
	if readable := err == nil && a.Kind == b.Kind; !readable {
		return false, nil
	}
	if a.Server == b.Server {
		return !Ahead(p, old), nil
	}
	server, err := c.Lines.Server(ctx)
	return a.Server != server, err
}

// Begin is that of store.Store; start is the position of a rescan from its time on.
func (c *Consumer[P]) Begin(ctx context.Context, since time.Time, start func(context.Context) (P, error)) (first bool, err error) {
	if c.Name == "" {
		return false, errors.New("starting a change feed: the consumer has no name")
	}
	ctx, cancel := context.WithTimeout(ctx, OperationTimeout)
	defer cancel()
	l, err := c.Lines.Line(ctx, c.Name)
	if err == nil && !l.Stored {
		var p P
		if p, err = start(ctx); err == nil {
			first, err = c.Lines.Swap(ctx, c.Name, l, Line{Stored: true, Text: PositionText(p), Mark: &since})
		}
	}
	if err != nil {
		return false, fmt.Errorf("starting the change feed of %s: %w", c.Name, err)
	}
	return first, nil
}

// Rescan stores that a rescan begins at p, because what is stored was lost.
func (c *Consumer[P]) Rescan(ctx context.Context, lost Line, p P, why Loss) error {
	done, err := c.Lines.Swap(ctx, c.Name, lost, Line{Stored: true, Text: PositionText(p), Mark: lost.Mark})
	if err == nil && !done {
		err = fmt.Errorf("the position of %s was changed by another process", c.Name)
	}
	if err != nil {
		return fmt.Errorf("starting a rescan: %w", err)
	}
	reason, mark := string(why), "lost"
	if lost.Mark == nil {
		reason += "-mark-lost"
	} else {
		mark = lost.Mark.Format(time.RFC3339)
	}
	c.Metrics.Rescans.WithLabelValues(c.Name, reason).Inc()
	c.Log.Warn("rescan started after a lost feed position", "consumer", c.Name, "reason", reason, "mark", mark)
	return nil
}
