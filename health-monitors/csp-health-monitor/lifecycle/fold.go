package lifecycle

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// Change is what an announcement did to the stored document.
type Change string

// Changes.
const (
	First     Change = "first"     // was not known
	Updated   Change = "updated"   // something else is known now
	Unchanged Change = "unchanged" // nothing is
	Stale     Change = "stale"     // older than what is known, or behind its end
	Reopened  Change = "reopened"  // taken up again after its end
	Revived   Change = "revived"   // given up for want of a node, which is there now
	Vanished  Change = "vanished"  // ended by not being listed any more
	Refused   Change = "refused"   // has no id, or no machine, that could be kept
)

// Bounds of what is kept of an announcement, in bytes and entries.
const (
	maxID      = 400
	maxText    = 4 << 10
	maxEntries = 32
	maxKey     = 128
	maxValue   = 1 << 10
)

// Origin is where announcements come from.
type Origin struct {
	CSP, Cluster string
	// ResourceType is what the provider calls a machine: EC2, gce_instance.
	ResourceType string
}

// Fold is the document after an announcement; before is nil for one that is not stored.
// node is the Node of the machine now, empty for none. What the provider has ended stays
// ended unless it reports clearly that it has begun again, and what is known is not
// forgotten because an announcement leaves it out.
func Fold(before *maintenance.Event, a announcement.Announcement, o Origin, node string, now time.Time) (maintenance.Event, Change) {
	if before == nil {
		e, change := begin(a, o, now)
		e.NodeName = node
		return e, change
	}
	next, change := *before, Updated
	ended := stateOf(a.State).Ended()
	switch {
	case next.ProviderUpdated != nil && !a.Updated.IsZero() && a.Updated.Before(*next.ProviderUpdated):
		return *before, Stale
	case next.CSPStatus.Ended() && !ended && !again(next, a):
		return *before, Stale
	case next.CSPStatus.Ended() && !ended:
		reopen(&next)
		change = Reopened
	case next.Finished && !next.CSPStatus.Ended() && !ended && node != "" && next.Outcome != string(EventRefused):
		renew(&next)
		change = Revived
	}
	adopt(&next, a, now)
	if node != "" && next.Quarantined == nil && next.Waiting == nil && !next.Finished {
		next.NodeName = node
	}
	if reflect.DeepEqual(next, *before) {
		return *before, Unchanged
	}
	return withStatus(next, now), change
}

func begin(a announcement.Announcement, o Origin, now time.Time) (maintenance.Event, Change) {
	if a.ID == "" || len(a.ID) > maxID || clean(a.ID, maxID) != a.ID || a.Machine == "" || clean(a.Machine, maxID) != a.Machine {
		return maintenance.Event{}, Refused
	}
	e := maintenance.Event{
		EventID: a.ID, CSP: o.CSP, ClusterName: o.Cluster, ResourceType: o.ResourceType, ResourceID: a.Machine, Kind: maintenance.Scheduled,
		CSPStatus: maintenance.Pending, RecommendedAction: record.ActionNone, Received: instant(now),
	}
	adopt(&e, a, now)
	return withStatus(e, now), First
}

// again reports whether the provider has clearly taken up what it had ended: it lists again
// what it had not listed, announces another window behind the end, or reports in a later
// update that it is at work or that the window is still ahead.
func again(e maintenance.Event, a announcement.Announcement) bool {
	if e.Vanished {
		return true
	}
	ahead := !a.Begin.IsZero() && e.ActualEnd != nil && a.Begin.After(*e.ActualEnd)
	if later := e.ProviderUpdated != nil && a.Updated.After(*e.ProviderUpdated); later && (ahead || a.State == announcement.Ongoing) {
		return true
	}
	return ahead && (e.ScheduledStart == nil || !a.Begin.Equal(*e.ScheduledStart))
}

// reopen takes a document up again. A fault that was reported and not healed goes on.
func reopen(e *maintenance.Event) {
	if e.Quarantined == nil || e.Healed != nil || e.Finished {
		renew(e)
	}
	e.CSPStatus, e.Vanished, e.TimedOut = maintenance.Pending, false, nil
	e.ActualStart, e.ActualEnd, e.ScheduledStart, e.ScheduledEnd = nil, nil, nil, nil
}

// renew begins the next occurrence, of which nothing is reported yet.
func renew(e *maintenance.Event) {
	e.Occurrence++
	e.Emergency = false
	e.Quarantined, e.TimedOut, e.Healed = nil, nil, nil
	e.Finished, e.Outcome, e.ExpireAt = false, "", nil
}

// adopt takes over what the announcement reports.
func adopt(e *maintenance.Event, a announcement.Announcement, now time.Time) {
	if state := stateOf(a.State); rank(state) > rank(e.CSPStatus) {
		if e.CSPStatus = state; state.Ended() {
			e.ActualEnd = new(instant(endOf(a, now)))
		}
	}
	if a.Unplanned {
		e.Kind = maintenance.Unscheduled
	}
	e.Emergency = e.Emergency || a.Emergency
	keep(&e.ScheduledStart, a.Begin)
	keep(&e.ScheduledEnd, a.End)
	keep(&e.ActualStart, a.Began)
	keep(&e.ProviderUpdated, a.Updated)
	if e.Quarantined == nil && e.Waiting == nil {
		text(&e.Code, a.Code, maxKey) // then it is part of the fault's identity
	}
	text(&e.Description, a.Text, maxText)
	if a.Action != 0 {
		if action := record.FromProto(eventOf(a)).RecommendedAction; action != record.ActionUnknown {
			e.RecommendedAction = action
		}
	}
	if len(a.Metadata) > 0 {
		e.Metadata = bounded(a.Metadata)
	}
}

// endOf is when it ended: what the provider reports, but not in the future.
func endOf(a announcement.Announcement, now time.Time) time.Time {
	if a.Ended.IsZero() || a.Ended.After(now) {
		return now
	}
	return a.Ended
}

// Vanish is the document of a maintenance that the provider does not list any more:
// it has ended, how is not known.
func Vanish(e maintenance.Event, now time.Time) (maintenance.Event, Change) {
	if e.CSPStatus.Ended() || e.Finished {
		return e, Unchanged
	}
	ahead := e.CSPStatus == maintenance.Pending && e.ScheduledStart != nil && e.ScheduledStart.After(now)
	if e.CSPStatus = maintenance.Completed; ahead {
		e.CSPStatus = maintenance.Cancelled
	}
	e.Vanished, e.ActualEnd = true, new(instant(now))
	return withStatus(e, now), Vanished
}

func stateOf(s announcement.State) maintenance.CSPStatus {
	switch s {
	case announcement.Ongoing:
		return maintenance.Underway
	case announcement.Completed:
		return maintenance.Completed
	case announcement.Cancelled:
		return maintenance.Cancelled
	case announcement.Scheduled:
	}
	return maintenance.Pending // also of a word that is none of them
}

func rank(s maintenance.CSPStatus) int {
	switch s {
	case maintenance.Underway:
		return 1
	case maintenance.Completed, maintenance.Cancelled:
		return 2
	case maintenance.Pending:
	}
	return 0
}

// instant is what every store gives back unchanged.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// maxYear is the last year of which every store keeps times.
const maxYear = 9999

func keep(to **time.Time, t time.Time) {
	if t.IsZero() || t.UTC().Year() < 1 || t.UTC().Year() > maxYear {
		return
	}
	if *to == nil || !(*to).Equal(instant(t)) {
		*to = new(instant(t))
	}
}

func text(to *string, s string, bytes int) {
	if s = clean(s, bytes); s != "" {
		*to = s
	}
}

// clean is a text that every store keeps as it is.
func clean(s string, bytes int) string {
	s = strings.ToValidUTF8(s[:min(len(s), bytes)], "")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\ufffd' {
			return ' '
		}
		return r
	}, s)
}

// bounded are the first entries by name.
func bounded(m map[string]string) map[string]string {
	out := make(map[string]string, min(len(m), maxEntries))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if len(out) == maxEntries {
			break
		}
		if key := clean(k, maxKey); key != "" {
			out[key] = clean(m[k], maxValue)
		}
	}
	return out
}

// withStatus is a changed document with what follows from its content.
func withStatus(e maintenance.Event, now time.Time) maintenance.Event {
	e.Status, e.LastUpdated = status(e), instant(now)
	return e
}

// status is the view of a document.
func status(e maintenance.Event) maintenance.Status {
	switch {
	case e.Outcome == string(EventRefused):
		return maintenance.Failed
	case e.Outcome == string(NodeGone), e.Outcome == string(MachineReplaced):
		return maintenance.NodeGone
	case e.Healed != nil:
		return maintenance.HealthyTriggered
	case e.CSPStatus.Ended() && e.TimedOut != nil:
		return maintenance.ReadinessTimeout
	case e.CSPStatus == maintenance.Cancelled:
		return maintenance.Canceled
	case e.CSPStatus == maintenance.Completed:
		return maintenance.Complete
	case e.CSPStatus == maintenance.Underway:
		return maintenance.Ongoing
	case e.Quarantined != nil:
		return maintenance.QuarantineTriggered
	}
	return maintenance.Detected
}
