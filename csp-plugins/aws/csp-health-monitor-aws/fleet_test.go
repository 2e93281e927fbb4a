package main

import (
	"fmt"
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// fleet is 10,000 instances of which 2,000 have an event that both APIs report.
func fleet(s *server) {
	const code = "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED"
	for i := range 10_000 {
		machine := instance{id: fmt.Sprintf("i-%08x", i)}
		if i%5 == 0 {
			machine.events = []scheduledEvent{{ID: fmt.Sprintf("instance-event-%08x", i), Code: "instance-reboot", Description: "The instance is scheduled for a reboot", NotBefore: at(5), NotAfter: at(7)}}
			s.events = append(s.events, event{arn: arn(code, machine.id), code: code, category: "scheduledChange", status: "upcoming", start: in(5), end: in(7), updated: in(-0.5), entities: []entity{{machine.id, "PENDING"}}, text: "x"})
		}
		s.instances = append(s.instances, machine)
	}
}

// What a poll of a large fleet asks: first everything, then the pages of EC2 and what
// has changed.
func TestCallsOfALargeFleet(t *testing.T) {
	testkit.Long(t, "the faults on a page in the middle, and the lives, read page by page")
	s := serve(t)
	fleet(s)
	source := connect(t, s)
	r := read(t, source, announcement.Question{})
	// 10 pages of instances; 20 pages of events and one more of those asked for by type;
	// the entities of 2,000 events, 10 at a time; no text, as EC2 has one.
	want := map[string]int{"DescribeInstanceStatus": 10, "DescribeEvents": 21, "DescribeAffectedEntities": 200, "DescribeEventDetails": 0}
	if len(r.Announcements) != 2000 || r.Calls != 231 {
		t.Errorf("%d announcements by %d calls", len(r.Announcements), r.Calls)
	}
	for operation, n := range want {
		if got := s.count(operation); got != n {
			t.Errorf("%d times %s, want %d", got, operation, n)
		}
	}
	q := announcement.Question{Now: in(2), Checkpoint: at(1.9)}
	for _, a := range r.Announcements {
		q.Open = append(q.Open, a.ID)
	}
	if again := read(t, source, q); len(again.Announcements) != 2000 || again.Calls != 12 {
		t.Errorf("later %d announcements by %d calls, want 2000 by 12", len(again.Announcements), again.Calls)
	}
	// Where EC2 shows nothing, what is open is asked for by its id, 10 at a time: the
	// event, its entities, its text.
	s.instances, s.requests, s.events = nil, nil, s.events[:100]
	alone := read(t, source, announcement.Question{})
	q.Open = nil
	for _, a := range alone.Announcements {
		q.Open = append(q.Open, a.ID)
	}
	if again := read(t, source, q); len(again.Announcements) != 100 || again.Calls != 1+2+3*10 {
		t.Errorf("alone %d announcements by %d calls", len(again.Announcements), again.Calls)
	}
}

func BenchmarkRead(b *testing.B) {
	s := serve(b)
	fleet(s)
	source := connect(b, s)
	b.ReportAllocs()
	for b.Loop() {
		r, err := source.Read(b.Context(), announcement.Question{Now: now})
		if err != nil || len(r.Announcements) != 2000 {
			b.Fatal(len(r.Announcements), err)
		}
		s.requests, s.questions = nil, nil
	}
}
