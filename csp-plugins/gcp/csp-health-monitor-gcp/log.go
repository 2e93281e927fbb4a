package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/logging/v2"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// pair is one zone's part of a page.
type pair = compute.InstancesScopedListPair

// linePage is the most that entries.list lists at once
// (source: https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list).
const linePage = 1000

// over is what the log reports when a maintenance has ended. The line has no other mark:
// its notice is gone (source: "Monitor and plan for a host maintenance event").
const over = "Maintenance window has completed"

// line is one of the audit log (source: LogEntry of the Cloud Logging API and AuditLog,
// https://cloud.google.com/logging/docs/reference/audit/auditlog/rest/Shared.Types/AuditLog).
type line struct {
	at                  time.Time
	insertID, operation string
	instance, machine   string
	method, text        string
	notice              notice
}

// methods is the part of the filter that does not change.
func (s *Source) methods() string {
	return fmt.Sprintf(`logName="projects/%s/logs/cloudaudit.googleapis.com%%2Fsystem_event" AND protoPayload.methodName=("%s")`,
		s.project, strings.Join([]string{upcoming, infra, terminate, migrate}, `" OR "`))
}

// lines lists the log from a time up to now, each line once, in the order of time.
func (s *Source) lines(ctx context.Context, since, now time.Time, calls *int) ([]line, error) {
	request := &logging.ListLogEntriesRequest{
		ResourceNames: []string{"projects/" + s.project}, OrderBy: "timestamp asc", PageSize: linePage,
		Filter: fmt.Sprintf(`%s AND timestamp>="%s" AND timestamp<="%s"`, s.methods(), since.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)),
	}
	var out []line
	seen := map[string]bool{}
	for page := 1; ; page++ {
		*calls++
		answer, err := s.page(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("listing the system event audit log, page %d: %w", page, refused(err))
		}
		for _, e := range answer.Entries {
			if key := e.InsertId + e.Timestamp; !seen[key] {
				seen[key] = true
				out = append(out, s.parse(e))
			}
		}
		if answer.NextPageToken == "" {
			return out, nil
		}
		if answer.NextPageToken == request.PageToken {
			return nil, fmt.Errorf("listing the system event audit log: page %d refers to itself", page)
		}
		request.PageToken = answer.NextPageToken
	}
}

// page asks for one page of the log.
func (s *Source) page(ctx context.Context, request *logging.ListLogEntriesRequest) (*logging.ListLogEntriesResponse, error) {
	var answer *logging.ListLogEntriesResponse
	err := gax.Invoke(ctx, func(ctx context.Context, _ gax.CallSettings) (err error) {
		answer, err = s.logs.List(request).Context(ctx).Do()
		return err
	}, gax.WithRetry(again))
	return answer, err
}

// parse reads a line. What it lacks stays empty: a line that contains little still shows
// that the instance has maintenance.
func (s *Source) parse(e *logging.LogEntry) line {
	var audit struct {
		MethodName   string                   `json:"methodName"`
		ResourceName string                   `json:"resourceName"`
		Status       struct{ Message string } `json:"status"`
		Metadata     notice                   `json:"metadata"`
	}
	_ = json.Unmarshal(e.ProtoPayload, &audit)
	out := line{at: when(e.Timestamp), insertID: e.InsertId, method: audit.MethodName, text: audit.Status.Message, notice: audit.Metadata}
	if e.Operation != nil {
		out.operation = e.Operation.Id
	}
	if e.Resource != nil {
		out.instance = e.Resource.Labels["instance_id"]
	}
	if part := strings.Split(audit.ResourceName, "/"); len(part) == 6 {
		out.machine = part[1] + "/" + part[3] + "/" + part[5]
	}
	return out
}

// loggedMaintenance is a maintenance as the log reports it.
type loggedMaintenance struct {
	announcement.Announcement
	instance, method, operation string
	first                       time.Time // its first line
}

// fold makes maintenances of lines, and joins them with what Compute Engine shows, which
// wins where both show the same. oldest is the time of the oldest line that is needed
// again: the first of what stands by the log alone.
func fold(lines []line, seen sight, o open) (out []announcement.Announcement, oldest time.Time) {
	done := map[string]bool{}
	for _, l := range groupByMaintenance(lines, o) {
		i, listed := seen.byID[l.instance]
		l.settle(i, seen, o.now)
		at, shows := seen.maintains[l.instance]
		unannounced := l.method == terminate || l.method == migrate
		switch {
		case unannounced && !listed && !l.State.Ended() && seen.complete:
			continue // its instance is gone
		case unannounced, l.State.Ended() && o.ids[l.ID]:
			out, done[l.ID] = append(out, l.Announcement), true
		case l.State.Ended():
			continue
		case shows:
			l.enrich(&seen.shown[at])
			continue
		case listed || !seen.complete:
			out = append(out, l.Announcement)
		default:
			continue // its instance is gone
		}
		if !l.State.Ended() && (oldest.IsZero() || l.first.Before(oldest)) {
			oldest = l.first
		}
	}
	for _, a := range seen.shown {
		if !done[a.ID] {
			out = append(out, a)
		}
	}
	return out, oldest
}

// groupByMaintenance puts the lines of each maintenance together.
func groupByMaintenance(lines []line, o open) []*loggedMaintenance {
	var out []*loggedMaintenance
	under := map[string]*loggedMaintenance{} // what has not ended, by instance
	for _, l := range lines {
		if l.method == terminate || l.method == migrate {
			out = unannounced(out, l)
			continue
		}
		now := under[l.instance]
		if strings.Contains(l.text, over) {
			if now == nil {
				now = begin(l, o)
				now.ID = o.standing(l.instance)
				out = append(out, now)
			}
			now.State, now.Ended, now.Updated = announcement.Completed, l.at, l.at
			delete(under, l.instance)
			continue
		}
		if now == nil {
			now = begin(l, o)
			under[l.instance] = now
			out = append(out, now)
			continue
		}
		now.retell(l, o)
	}
	return out
}

// begin is a life by its first line.
func begin(l line, o open) *loggedMaintenance {
	out := &loggedMaintenance{instance: l.instance, method: l.method, operation: l.operation, first: l.at}
	out.Announcement = l.notice.announce(l.method, l.instance, l.machine, o)
	out.Text, out.Updated = l.text, l.at
	if out.State == announcement.Ongoing {
		out.Began = l.at
	}
	return out
}

// retell is what a further line changes; the id stays.
func (lm *loggedMaintenance) retell(l line, o open) {
	id, began, machine := lm.ID, lm.Began, lm.Machine
	lm.Announcement = l.notice.announce(lm.method, l.instance, l.machine, o)
	lm.ID, lm.Text, lm.Updated = id, l.text, l.at
	if lm.Machine == "" {
		lm.Machine = machine
	}
	if lm.State == announcement.Ongoing {
		if lm.Began = began; began.IsZero() {
			lm.Began = l.at
		}
	}
}

// unannounced adds a life that began with its line; the lines of one operation are one.
func unannounced(to []*loggedMaintenance, l line) []*loggedMaintenance {
	for _, f := range to {
		if f.method == l.method && f.instance == l.instance && f.operation == l.operation && l.operation != "" {
			f.Updated = l.at
			return to
		}
	}
	f := begin(l, open{})
	f.ID = l.instance + "/" + l.method + "/" + l.at.UTC().Format(time.RFC3339Nano)
	f.State, f.Began, f.Begin = announcement.Ongoing, l.at, l.at
	if l.method == migrate { // its line is written when it is done
		f.State, f.Ended = announcement.Completed, l.at
	}
	return append(to, f)
}

// standing is the announced maintenance of an instance that is open; empty if none is.
func (o open) standing(instance string) string {
	if was := o.announced[instance]; len(was) > 0 {
		return instance + "/" + was[0]
	}
	return ""
}

// settle ends a life by what Compute Engine shows of its instance: one that was stopped
// runs again, or the window is over and no maintenance is shown.
func (lm *loggedMaintenance) settle(i *computepb.Instance, seen sight, now time.Time) {
	if i == nil {
		return
	}
	if lm.Machine == "" {
		lm.Machine = machine(seen.project, i)
	}
	if lm.State.Ended() {
		return
	}
	started := when(i.GetLastStartTimestamp())
	if lm.method == terminate {
		if i.GetStatus() == computepb.Instance_RUNNING.String() && started.After(lm.first) {
			lm.State, lm.Ended = announcement.Completed, started
		}
		return
	}
	_, shows := seen.maintains[lm.instance]
	if !shows && !lm.End.IsZero() && lm.End.Add(grace).Before(now) {
		lm.State, lm.Ended = announcement.Completed, lm.End
	}
}

// enrich adds to what an instance shows what only the log knows.
func (lm *loggedMaintenance) enrich(a *announcement.Announcement) {
	a.Text, a.Updated = lm.Text, lm.Updated
	if a.State == announcement.Ongoing {
		a.Began = lm.Began
	}
}
