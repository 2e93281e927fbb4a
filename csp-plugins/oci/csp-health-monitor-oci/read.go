package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/core"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// listPage is the most that a list holds at once.
const listPage = 1000

// Read lists the events of all compartments, and asks for those that are open here and
// not listed. It keeps no checkpoint: the lists are whole.
func (s *Source) Read(ctx context.Context, q announcement.Question) (announcement.Reading, error) {
	calls := 0
	events := map[string]core.InstanceMaintenanceEventSummary{}
	for _, c := range s.compartments {
		if err := s.list(ctx, c, events, &calls); err != nil {
			return announcement.Reading{}, err
		}
	}
	whole, err := s.missing(ctx, q.Open, events, &calls)
	if err != nil {
		return announcement.Reading{}, err
	}
	return announcement.Reading{Announcements: decide(events, q.Open), Complete: whole, Calls: calls}, nil
}

// call asks OCI, and stops waiting when ctx ends. The SDK does not see that end: its Retry
// (oci-go-sdk v65.129.0, common/retry.go) reads then what its own goroutine still writes.
// What is under way ends by callLimit, and nobody looks at it.
func call[Q, A any](ctx context.Context, ask func(context.Context, Q) (A, error), request Q) (answer A, err error) {
	type result struct {
		answer A
		err    error
	}
	if ctx.Err() != nil {
		return answer, ctx.Err()
	}
	done := make(chan result, 1)
	go func() {
		a, err := ask(context.WithoutCancel(ctx), request)
		done <- result{a, err}
	}()
	select {
	case <-ctx.Done():
		return answer, ctx.Err()
	case r := <-done:
		return r.answer, r.err
	}
}

// list adds the events of a compartment, in all states: one that this program does not
// know is added too.
func (s *Source) list(ctx context.Context, compartment string, to map[string]core.InstanceMaintenanceEventSummary, calls *int) error {
	size := listPage
	request := core.ListInstanceMaintenanceEventsRequest{CompartmentId: &compartment, Limit: &size}
	for page := 1; ; page++ {
		*calls++
		answer, err := call(ctx, s.compute.ListInstanceMaintenanceEvents, request)
		if err != nil {
			return fmt.Errorf("listing the maintenance events of %s, page %d: %w", compartment, page, refused(err))
		}
		for _, e := range answer.Items {
			to[announcement.Value(e.Id)] = e
		}
		if announcement.Value(answer.OpcNextPage) == "" {
			return nil
		}
		if announcement.Value(answer.OpcNextPage) == announcement.Value(request.Page) {
			return fmt.Errorf("listing the maintenance events of %s: page %d refers to itself", compartment, page)
		}
		request.Page = answer.OpcNextPage
	}
}

// missing adds the open events that were not listed. OCI gives the same answer for what
// is gone and for what may not be seen; an event is gone only if another one could be
// got. false means that this could not be found out.
func (s *Source) missing(ctx context.Context, open []string, to map[string]core.InstanceMaintenanceEventSummary, calls *int) (bool, error) {
	var proof string
	for id := range to {
		if proof == "" || id < proof {
			proof = id
		}
	}
	gone, proven := false, false
	for _, id := range open {
		if _, listed := to[id]; listed {
			continue
		}
		e, found, err := s.event(ctx, id, calls)
		if err != nil {
			return false, err
		}
		if !found {
			gone = true
			continue
		}
		to[id], proven = e, true
	}
	if !gone || proven {
		return true, nil
	}
	if proof == "" {
		return false, nil
	}
	_, found, err := s.event(ctx, proof, calls)
	return found, err
}

// event gets one event; false where OCI reports that it is gone or may not be seen.
func (s *Source) event(ctx context.Context, id string, calls *int) (core.InstanceMaintenanceEventSummary, bool, error) {
	*calls++
	answer, err := call(ctx, s.compute.GetInstanceMaintenanceEvent, core.GetInstanceMaintenanceEventRequest{InstanceMaintenanceEventId: &id})
	if e, ok := common.IsServiceError(err); ok && e.GetHTTPStatusCode() == http.StatusNotFound {
		return core.InstanceMaintenanceEventSummary{}, false, nil
	}
	if err != nil {
		return core.InstanceMaintenanceEventSummary{}, false, fmt.Errorf("getting the maintenance event %s: %w", id, refused(err))
	}
	return summary(answer.InstanceMaintenanceEvent), true, nil
}

// summary is an event as lists show it.
func summary(e core.InstanceMaintenanceEvent) core.InstanceMaintenanceEventSummary {
	return core.InstanceMaintenanceEventSummary{
		Id: e.Id, InstanceId: e.InstanceId, CompartmentId: e.CompartmentId, MaintenanceCategory: e.MaintenanceCategory,
		MaintenanceReason: e.MaintenanceReason, InstanceAction: e.InstanceAction, AlternativeResolutionActions: e.AlternativeResolutionActions,
		TimeWindowStart: e.TimeWindowStart, CanReschedule: e.CanReschedule, TimeCreated: e.TimeCreated, LifecycleState: e.LifecycleState,
		CreatedBy: e.CreatedBy, DisplayName: e.DisplayName, TimeStarted: e.TimeStarted, TimeFinished: e.TimeFinished,
		StartWindowDuration: e.StartWindowDuration, EstimatedDuration: e.EstimatedDuration, TimeHardDueDate: e.TimeHardDueDate,
		Description: e.Description, CorrelationToken: e.CorrelationToken,
	}
}

// decide returns which events are announced. One that failed ends with the next of the
// same machine, and is not news if it was not open here.
func decide(events map[string]core.InstanceMaintenanceEventSummary, open []string) []announcement.Announcement {
	stands := make(map[string]bool, len(open))
	for _, id := range open {
		stands[id] = true
	}
	newest := map[string]time.Time{} // creation by instance
	for _, e := range events {
		if at := announcement.Value(e.TimeCreated).Time; at.After(newest[announcement.Value(e.InstanceId)]) {
			newest[announcement.Value(e.InstanceId)] = at
		}
	}
	var out []announcement.Announcement
	for id, e := range events {
		a := announce(e)
		failed := e.LifecycleState == core.InstanceMaintenanceEventLifecycleStateFailed
		if failed && newest[a.Machine].After(announcement.Value(e.TimeCreated).Time) {
			a.State = announcement.Completed
		}
		if stands[id] || !a.State.Ended() && !failed {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, announcement.Compare)
	return out
}
