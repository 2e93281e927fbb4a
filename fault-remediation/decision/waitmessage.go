package decision

import (
	"fmt"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// waitUntil waits until a time.
func (d decision) waitUntil(why Reason, until time.Time, message string) Step {
	return Step{Reason: why, Message: message, After: until.Sub(d.now), Until: until}
}

// maxListed bounds the pods that a wait names.
const maxListed = 10

func listed(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// voiced turns a wait that its record does not report yet into the write that reports it, and one
// that is over into the write that removes it. The next pass finds it reported, and waits.
func (d decision) voiced(s Step) Step {
	if !s.OnlyWaits() {
		return s
	}
	e := d.edit()
	for _, r := range d.v.Records {
		reported, want := waiting(r), (*record.Wait)(nil)
		switch {
		case r.ID == s.Waits:
			want = d.wait(s, reported)
		case d.unrepaired(r):
			want = d.wait(d.unrepairedWait(r), reported)
		}
		if alike(reported, want) || (reported == nil && !record.Open(r)) {
			continue
		}
		e.of(r).Remediation.Waiting = want
	}
	if len(e.writes) == 0 {
		return s
	}
	return e.step(s.Reason, s.Message)
}

// wait is what a record reports about a step that waits. It began when the record
// began to report it; another claim is another wait.
func (d decision) wait(s Step, current *record.Wait) *record.Wait {
	w := record.Wait{Reason: string(s.Reason), Message: s.Message, Since: d.now.UTC()}
	if current != nil && current.Reason == w.Reason && (s.Reason != WaitClaim || current.Message == w.Message) {
		w.Since = current.Since
	}
	if !s.Until.IsZero() {
		w.Until = new(s.Until.UTC())
	}
	return &w
}

// alike compares what a reader sees. An end is computed again in every pass, from times
// that the stores keep to the millisecond.
func alike(a, b *record.Wait) bool {
	if a == nil || b == nil {
		return a == b
	}
	if (a.Until == nil) != (b.Until == nil) || (a.Until != nil && a.Until.Sub(*b.Until).Abs() > time.Second) {
		return false
	}
	return a.Reason == b.Reason && a.Message == b.Message
}

func waiting(r record.Record) *record.Wait {
	if r.Status.Remediation == nil {
		return nil
	}
	return r.Status.Remediation.Waiting
}

// waitedSince is since when a record reports that it waits for a reason, for at most a
// period; now if it does not.
func (d decision) waitedSince(r record.Record, why Reason, period time.Duration) time.Time {
	if w := waiting(r); w != nil && w.Reason == string(why) && !w.Since.After(d.now.Add(period)) {
		return w.Since
	}
	return d.now
}
