package main

import (
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// remembered is how long EC2 shows a scheduled event that has completed (source: the
// description of InstanceStatusEvent). If AWS Health reports an older window, EC2 may
// have shown and forgotten the event.
const remembered = 7 * 24 * time.Hour

// join makes one announcement of what EC2 and AWS Health report as one maintenance. What
// both report and has ended is announced only if it was open here: EC2 goes on showing it
// for a week and Health for longer, under another id than it may have begun with.
func join(scheduled, reported []announcement.Announcement, open []string, now time.Time) []announcement.Announcement {
	stands := make(map[string]bool, len(open))
	for _, id := range open {
		stands[id] = true
	}
	byMachine := map[string][]*announcement.Announcement{}
	for i := range scheduled {
		s := &scheduled[i]
		byMachine[s.Machine] = append(byMachine[s.Machine], s)
	}
	ofUltra(reported)
	var out []announcement.Announcement
	for _, t := range reported {
		mirrors := meaning(t.Code).mirrors
		if s := same(t, byMachine[t.Machine], mirrors); s != nil {
			merge(s, t, stands)
			continue
		}
		forgotten := !t.Begin.IsZero() && t.Begin.Before(now.Add(-remembered))
		if mirrors != nil && !stands[t.ID] && (t.State.Ended() || forgotten) {
			continue
		}
		out = append(out, t)
	}
	for _, s := range scheduled {
		if !s.State.Ended() || stands[s.ID] {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, announcement.Compare)
	return slices.CompactFunc(out, func(a, b announcement.Announcement) bool { return a.ID == b.ID })
}

// same finds the scheduled event that is an event of AWS Health: one of a code that
// mirrors it, whose window meets the other; else, as windows move in EC2 before they
// do in Health, one that has not ended.
func same(t announcement.Announcement, scheduled []*announcement.Announcement, mirrors []string) *announcement.Announcement {
	var moved *announcement.Announcement
	for _, s := range scheduled {
		switch {
		case !slices.Contains(mirrors, s.Code):
		case meet(t, *s):
			return s
		case !s.State.Ended() && !t.State.Ended():
			moved = s
		}
	}
	return moved
}

// meet reports whether two windows have a moment in common.
func meet(a, b announcement.Announcement) bool {
	return !a.Begin.After(last(b)) && !b.Begin.After(last(a))
}

// last is the end of a window; its begin where no end is given.
func last(a announcement.Announcement) time.Time {
	if a.End.Before(a.Begin) {
		return a.Begin
	}
	return a.End
}

// merge adds to EC2's announcement what only AWS Health knows. The id stays that under
// which the maintenance is open.
func merge(s *announcement.Announcement, t announcement.Announcement, stands map[string]bool) {
	if stands[t.ID] && !stands[s.ID] {
		s.ID = t.ID
	}
	s.Emergency = s.Emergency || t.Emergency
	if t.Updated.After(s.Updated) {
		s.Updated = t.Updated
	}
	s.Metadata = maps.Clone(s.Metadata)
	maps.Copy(s.Metadata, t.Metadata)
	s.Metadata["eventTypeCode"] = t.Code
}

// ofUltra ends the maintenance of an UltraServer by the event of its own that AWS
// Health reports then, on the same entity.
func ofUltra(reported []announcement.Announcement) {
	over := map[string]time.Time{}
	for _, t := range reported {
		if t.Code == ultraEnd && t.Begin.After(over[t.Machine]) {
			over[t.Machine] = t.Begin
		}
	}
	for i := range reported {
		t := &reported[i]
		at, ok := over[t.Machine]
		if ok && (t.Code == ultraBegin || t.Code == ultraReduced) && !t.State.Ended() && !t.Begin.After(at) {
			t.State, t.Ended = announcement.Completed, at
		}
	}
}
