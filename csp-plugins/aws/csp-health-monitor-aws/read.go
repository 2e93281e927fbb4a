package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/health"
	healthtypes "github.com/aws/aws-sdk-go-v2/service/health/types"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

const (
	// statusPage is the most that DescribeInstanceStatus lists at once.
	statusPage = 1000
	// eventPage is the most that AWS Health lists at once.
	eventPage = 100
	// arns is how many events AWS Health takes in one question
	// (source: https://docs.aws.amazon.com/health/latest/APIReference/API_EntityFilter.html).
	arns = 10
	// overlap is how far before the checkpoint the window begins: AWS signs nothing
	// that is five minutes off its clock, the rest is for what Health lists late.
	overlap = time.Hour
	// unknown stands for the machine of an event that names none yet.
	unknown = "UNKNOWN"
)

// Read lists the scheduled events of all instances, and what has changed in AWS Health
// since the checkpoint, which is the time of the question that was stored last. Events
// of Health that are open here and did not change are asked for by their id.
func (s *Source) Read(ctx context.Context, q announcement.Question) (announcement.Reading, error) {
	var since time.Time
	if q.Checkpoint != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, q.Checkpoint); err != nil {
			return announcement.Reading{}, fmt.Errorf("reading the checkpoint %q as a time: %w, empty the checkpoint to start again", q.Checkpoint, err)
		}
	}
	calls := 0
	scheduled, err := s.scheduled(ctx, q.Now, &calls)
	if err != nil {
		return announcement.Reading{}, err
	}
	var reported []announcement.Announcement
	if s.health != nil {
		if reported, err = s.listHealthEvents(ctx, since, q, &calls); err != nil {
			return announcement.Reading{}, err
		}
	}
	joined := join(scheduled, reported, q.Open, q.Now)
	if s.health != nil {
		if err := s.describe(ctx, joined, &calls); err != nil {
			return announcement.Reading{}, err
		}
	}
	// Without AWS Health nothing is known of what it reported when it was asked.
	complete := s.health != nil || len(unlisted(q.Open, nil)) == 0
	return announcement.Reading{Announcements: joined, Complete: complete, Checkpoint: q.Now.UTC().Format(time.RFC3339), Calls: calls}, nil
}

// scheduled lists EC2's scheduled events, those of stopped instances too.
func (s *Source) scheduled(ctx context.Context, now time.Time, calls *int) ([]announcement.Announcement, error) {
	var out []announcement.Announcement
	in := &ec2.DescribeInstanceStatusInput{IncludeAllInstances: aws.Bool(true), MaxResults: aws.Int32(statusPage)}
	for page := 1; ; page++ {
		*calls++
		answer, err := s.ec2.DescribeInstanceStatus(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("listing the status of instances, page %d: %w", page, refused(err))
		}
		for _, i := range answer.InstanceStatuses {
			for _, e := range i.Events {
				out = append(out, ofEvent(announcement.Value(i.InstanceId), e, now))
			}
		}
		if announcement.Value(answer.NextToken) == "" {
			return out, nil
		}
		if announcement.Value(answer.NextToken) == announcement.Value(in.NextToken) {
			return nil, fmt.Errorf("listing the status of instances: page %d refers to itself", page)
		}
		in.NextToken = answer.NextToken
	}
}

// ofEvent is a scheduled event as an announcement.
func ofEvent(instance string, e ec2types.InstanceStatusEvent, now time.Time) announcement.Announcement {
	meaning := announcement.Find(ofEC2, string(e.Code))
	a := announcement.Announcement{
		ID: instance + "/" + announcement.Value(e.InstanceEventId), Machine: instance, Code: string(e.Code), State: stateOfEC2(e, now),
		Begin: announcement.Value(e.NotBefore), End: announcement.Value(e.NotAfter), Action: meaning.Action, Text: announcement.Value(e.Description),
		Metadata: map[string]string{"instanceEventId": announcement.Value(e.InstanceEventId)},
	}
	if e.NotBeforeDeadline != nil {
		a.Metadata["notBeforeDeadline"] = e.NotBeforeDeadline.UTC().Format(time.RFC3339)
	}
	return a
}

// listHealthEvents lists what AWS Health reports about entities.
func (s *Source) listHealthEvents(ctx context.Context, since time.Time, q announcement.Question, calls *int) ([]announcement.Announcement, error) {
	listed, err := s.events(ctx, since, q.Open, calls)
	if err != nil {
		return nil, err
	}
	entities, err := s.entities(ctx, listed, calls)
	if err != nil {
		return nil, err
	}
	var out []announcement.Announcement
	for _, e := range listed {
		affected := entities[announcement.Value(e.Arn)]
		if len(affected) == 0 { // none is reported yet: the event is kept, and so asked for again
			affected = []healthtypes.AffectedEntity{{EntityValue: aws.String(unknown)}}
		}
		for _, entity := range affected {
			out = append(out, ofEntity(e, entity, q.Now))
		}
	}
	return out, nil
}

// events lists what has changed, what is asked for by its type, and what is open here
// and neither, in the order of ids.
func (s *Source) events(ctx context.Context, since time.Time, open []string, calls *int) ([]healthtypes.Event, error) {
	events := map[string]healthtypes.Event{}
	changed := s.filter()
	if since.IsZero() {
		changed.EventStatusCodes = []healthtypes.EventStatusCode{healthtypes.EventStatusCodeOpen, healthtypes.EventStatusCodeUpcoming}
	} else {
		changed.LastUpdatedTimes = []healthtypes.DateTimeRange{{From: aws.Time(since.Add(-overlap))}}
	}
	named := *changed
	named.EventTypeCategories, named.EventTypeCodes = nil, alwaysIncludedEvents
	for _, filter := range []*healthtypes.EventFilter{changed, &named} {
		if err := s.list(ctx, filter, events, calls); err != nil {
			return nil, err
		}
	}
	for some := range slices.Chunk(unlisted(open, events), arns) {
		if err := s.list(ctx, &healthtypes.EventFilter{EventArns: some}, events, calls); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(events, func(_ string, e healthtypes.Event) bool {
		return strings.HasSuffix(announcement.Value(e.EventTypeCode), plannedLifecycle)
	})
	return slices.SortedFunc(maps.Values(events), func(a, b healthtypes.Event) int {
		return strings.Compare(announcement.Value(a.Arn), announcement.Value(b.Arn))
	}), nil
}

// filter is for what is scheduled in the region.
func (s *Source) filter() *healthtypes.EventFilter {
	return &healthtypes.EventFilter{
		Services: []string{"EC2"}, Regions: []string{s.region},
		EventTypeCategories: []healthtypes.EventTypeCategory{healthtypes.EventTypeCategoryScheduledChange},
	}
}

// unlisted are the ids of events of AWS Health that are open and not among those listed.
func unlisted(open []string, listed map[string]healthtypes.Event) []string {
	missing := map[string]bool{}
	for _, id := range open {
		if _, arn, _ := strings.Cut(id, "/"); strings.HasPrefix(arn, "arn:") {
			if _, ok := listed[arn]; !ok {
				missing[arn] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// list adds the events of a filter.
func (s *Source) list(ctx context.Context, filter *healthtypes.EventFilter, to map[string]healthtypes.Event, calls *int) error {
	in := &health.DescribeEventsInput{Filter: filter, MaxResults: aws.Int32(eventPage)}
	for page := 1; ; page++ {
		*calls++
		answer, err := s.health.DescribeEvents(ctx, in)
		if err != nil {
			return fmt.Errorf("listing events of AWS Health, page %d: %w", page, refused(err))
		}
		for _, e := range answer.Events {
			to[announcement.Value(e.Arn)] = e
		}
		if announcement.Value(answer.NextToken) == "" {
			return nil
		}
		if announcement.Value(answer.NextToken) == announcement.Value(in.NextToken) {
			return fmt.Errorf("listing events of AWS Health: page %d refers to itself", page)
		}
		in.NextToken = answer.NextToken
	}
}

// entities are what the events affect, by their id.
func (s *Source) entities(ctx context.Context, events []healthtypes.Event, calls *int) (map[string][]healthtypes.AffectedEntity, error) {
	out := map[string][]healthtypes.AffectedEntity{}
	for some := range slices.Chunk(ids(events), arns) {
		in := &health.DescribeAffectedEntitiesInput{Filter: &healthtypes.EntityFilter{EventArns: some}, MaxResults: aws.Int32(eventPage)}
		for page := 1; ; page++ {
			*calls++
			answer, err := s.health.DescribeAffectedEntities(ctx, in)
			if err != nil {
				return nil, fmt.Errorf("listing entities affected by AWS Health events, page %d: %w", page, refused(err))
			}
			for _, e := range answer.Entities {
				out[announcement.Value(e.EventArn)] = append(out[announcement.Value(e.EventArn)], e)
			}
			if announcement.Value(answer.NextToken) == "" {
				break
			}
			if announcement.Value(answer.NextToken) == announcement.Value(in.NextToken) {
				return nil, fmt.Errorf("listing entities affected by AWS Health events: page %d refers to itself", page)
			}
			in.NextToken = answer.NextToken
		}
	}
	return out, nil
}

func ids(events []healthtypes.Event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = announcement.Value(e.Arn)
	}
	return out
}

// ofEntity is an event of AWS Health, as far as it affects one entity. Its entity is a
// machine, or something else that no Node is named after and that is kept all the same.
func ofEntity(e healthtypes.Event, entity healthtypes.AffectedEntity, now time.Time) announcement.Announcement {
	m, machine := meaning(announcement.Value(e.EventTypeCode)), announcement.Value(entity.EntityValue)
	a := announcement.Announcement{
		ID: machine + "/" + announcement.Value(e.Arn), Machine: machine, Code: m.Name, State: stateOfHealth(e, entity.StatusCode, now),
		Unplanned: m.Unplanned, Emergency: m.Emergency, Begin: announcement.Value(e.StartTime), End: announcement.Value(e.EndTime),
		Updated: announcement.Value(e.LastUpdatedTime), Action: m.Action,
		Metadata: map[string]string{
			"eventArn": announcement.Value(e.Arn), "statusCode": string(e.StatusCode), "entityStatusCode": string(entity.StatusCode),
			"eventScopeCode": string(e.EventScopeCode), "eventTypeCategory": string(e.EventTypeCategory),
		},
	}
	if a.State == announcement.Ongoing {
		a.Began = a.Begin
	}
	if a.State == announcement.Completed {
		a.Ended = a.End
	}
	return a
}

// describe adds the texts of AWS Health to the announcements that are its own.
func (s *Source) describe(ctx context.Context, to []announcement.Announcement, calls *int) error {
	var asked []healthtypes.Event
	for i := range to {
		if _, arn, _ := strings.Cut(to[i].ID, "/"); strings.HasPrefix(arn, "arn:") && to[i].Text == "" {
			asked = append(asked, healthtypes.Event{Arn: &arn})
		}
	}
	texts, err := s.texts(ctx, asked, calls)
	if err != nil {
		return err
	}
	for i := range to {
		if text := texts[to[i].Metadata["eventArn"]]; text != "" && to[i].Text == "" {
			to[i].Text = text
		}
	}
	return nil
}

// texts are the descriptions of events. One that has none is announced without a text.
func (s *Source) texts(ctx context.Context, events []healthtypes.Event, calls *int) (map[string]string, error) {
	out := map[string]string{}
	asked := ids(events)
	slices.Sort(asked)
	for some := range slices.Chunk(slices.Compact(asked), arns) {
		*calls++
		answer, err := s.health.DescribeEventDetails(ctx, &health.DescribeEventDetailsInput{EventArns: some})
		if err != nil {
			return nil, fmt.Errorf("reading the descriptions of AWS Health events: %w", refused(err))
		}
		for _, d := range answer.SuccessfulSet {
			if d.Event != nil && d.EventDescription != nil {
				out[announcement.Value(d.Event.Arn)] = announcement.Value(d.EventDescription.LatestDescription)
			}
		}
		for _, f := range answer.FailedSet {
			out[announcement.Value(f.EventArn)] = fmt.Sprintf("AWS Health returned no description: %s: %s", announcement.Value(f.ErrorName), announcement.Value(f.ErrorMessage))
		}
	}
	return out, nil
}
