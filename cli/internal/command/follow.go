package command

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/nvidia/nvsentinel/cli/internal/snapshot"
	"github.com/nvidia/nvsentinel/cli/timeline"
)

// wipe makes a terminal show what follows alone.
const wipe = "\x1b[H\x1b[2J\x1b[3J"

// watched asks at first and whenever something may have changed, until ctx ends,
// which is how such a command ends. Its code is that of the last answer.
func (o *options) watched(ctx context.Context, node string, ask func(snapshot.Sources) (int, error)) (code int, err error) {
	sources, done := o.open(ctx)
	defer done()
	if code, err = ask(sources); err != nil {
		return 0, err
	}
	var one sync.Mutex
	err = sources.Watch(ctx, node, o.program.Clock, func() error {
		latest, problem := ask(sources)
		if over(ctx) {
			return nil // asked for the end in mid-question
		}
		code = latest
		return problem
	}, func(problem error) {
		one.Lock()
		defer one.Unlock()
		fmt.Fprintln(o.program.Err, display(o.program.Name)+":", problem)
	})
	return code, err
}

// follow prints a node's timeline, and then what is added to it.
func (o *options) follow(ctx context.Context, node string) (int, error) {
	var last *timeline.Timeline
	return o.watched(ctx, node, func(sources snapshot.Sources) (int, error) {
		facts := sources.Node(ctx, node, o.program.Clock.Now())
		if over(ctx) {
			return 0, nil
		}
		if err := nothing(facts.Store, facts.Cluster); err != nil && last == nil {
			return 0, err
		}
		now := timeline.Assemble(facts)
		text, news, before := now.Write, true, timeline.Timeline{}
		if last != nil {
			before = *last
			text, news = func(w io.Writer, style timeline.Style) error { return now.WriteChanges(w, before, style) }, now.Changed(before)
		}
		tl := now.MergeReported(before)
		last = &tl
		return o.answered(facts, now), o.line(now, news, text)
	})
}

// watch shows how the fleet stands: on a terminal in place of what it showed, else
// below it, when something has changed.
func (o *options) watch(ctx context.Context) (int, error) {
	var last *timeline.Fleet
	return o.watched(ctx, "", func(sources snapshot.Sources) (int, error) {
		facts := sources.Fleet(ctx, o.program.Clock.Now())
		if over(ctx) {
			return 0, nil
		}
		if err := nothing(facts.Store, facts.Cluster); err != nil && last == nil {
			return 0, err
		}
		fleet, before := timeline.Survey(facts), last
		last = &fleet
		changed := before == nil || !fleet.Same(*before)
		text := func(w io.Writer, style timeline.Style) error {
			between := ""
			switch {
			case o.program.Terminal:
				between = wipe
			case before != nil:
				between = "\n"
			}
			if _, err := io.WriteString(w, between); err != nil {
				return err
			}
			return fleet.Write(w, style)
		}
		return partial(fleet.Pause, fleet.Sources), o.line(fleet, changed || o.program.Terminal && o.output != "json", text)
	})
}

// over reports whether a person has ended the command.
func over(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// line writes an answer if there is news: as text, or as one line of JSON.
func (o *options) line(answer any, news bool, text func(io.Writer, timeline.Style) error) error {
	if !news {
		return nil
	}
	return o.write(answer, text, "")
}
