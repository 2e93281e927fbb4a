package timeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Wait is what would have a fault acted upon that is stored only until it is
// confirmed.
type Wait struct {
	// For is in words what confirms it, Until when at the latest; zero is not known.
	For   string    `json:"for"`
	Until time.Time `json:"until,omitzero"`
	// Confirmed is the record that was stored when it was confirmed, Confirms the one
	// for which it was the second signal, Recovered the recovery that ended the wait
	// before; all empty: none has come.
	Confirmed string `json:"confirmed,omitempty"`
	Confirms  string `json:"confirms,omitempty"`
	Recovered string `json:"recovered,omitempty"`
}

// waitOf is what a record waits for, or nil; records are those of its node.
func waitOf(r record.Record, records []record.Record) *Wait {
	what, within, ok := r.Event.Waits()
	if !ok {
		return nil
	}
	w := &Wait{For: what}
	if within > 0 {
		w.Until = r.CreatedAt.Add(within)
	}
	ends := func(x record.Record) bool {
		return x.Acts() && x.Event.IsHealthy && fault.Before(r, x) &&
			!slices.ContainsFunc(fault.Entries(r.Event), func(e fault.Entry) bool { return !fault.Clears(x.Event, r.Event, e) })
	}
	for _, x := range records {
		switch {
		case confirms(x, r, within):
			w.Confirmed = x.ID
		case x.Event.Confirms() != "" && x.Event.Metadata[record.MetadataConfirmedBy] == r.ID:
			w.Confirms = x.ID
		case w.Recovered == "" && ends(x):
			w.Recovered = x.ID
		}
	}
	return w
}

// confirms reports whether a confirmation is that of a record: it names the record, or
// a report of the same fault that was counted with it, and not stored as one.
func confirms(x, r record.Record, within time.Duration) bool {
	of := x.Event.Confirms()
	if of == "" || of == r.ID {
		return of != ""
	}
	a, b := x.Event, r.Event
	return a.Agent == b.Agent && a.CheckName == b.CheckName && x.CreatedAt.Sub(r.CreatedAt).Abs() <= within &&
		slices.EqualFunc(fault.Entries(a), fault.Entries(b), func(p, q fault.Entry) bool { return p.Key == q.Key })
}

// text is the wait as a line shows it.
func (w Wait) text(now time.Time, moment func(time.Time) string) string {
	until := ""
	if !w.Until.IsZero() {
		until = ", until " + moment(w.Until)
	}
	switch {
	case w.Confirmed != "":
		return "confirmed and processed as record " + w.Confirmed
	case w.Confirms != "":
		return "confirmed another fault, which was processed as record " + w.Confirms
	case w.Recovered != "":
		return "recovered, no longer pending"
	case w.Until.IsZero() || now.Before(w.Until):
		return "waiting for " + w.For + until
	}
	return "waited for " + w.For + until + ": not received"
}

// confirmed has the signals that a confirmation cites among the steps of its report.
func (b builder) confirmed(c record.Record, report []Step) (out []Step) {
	e := c.Event
	of := e.Confirms()
	if of == "" {
		return report
	}
	signal := func(id, text string) {
		s := Step{Kind: Signal, Text: text, Record: id}
		if r, ok := b.byID[id]; ok {
			s.At = r.CreatedAt
			s.Text = r.Event.Agent + ": " + gist(r.Event) + text
		}
		out = append(out, s)
	}
	signal(of, ", not processed on its own (Unconfirmed)")
	if by := e.Metadata[record.MetadataConfirmedBy]; by != of {
		signal(by, ", which confirms the fault")
	}
	out = append(out, Step{
		Kind: Confirmed, At: c.CreatedAt,
		Text: fmt.Sprintf("by rule %q: ", e.Metadata[record.MetadataConfirmedRule]) + e.Metadata[record.MetadataConfirmedHow],
	})
	out = append(out, report...)
	slices.SortStableFunc(out, func(a, b Step) int { return a.At.Compare(b.At) })
	return out
}
