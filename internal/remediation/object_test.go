package remediation_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

const (
	unread  = remediation.Unread
	present = remediation.Present
	absent  = remediation.Absent
)

// TestFind has every combination of what is remembered and what was seen.
func TestFind(t *testing.T) {
	for name, x := range map[string]struct {
		object remediation.Object
		want   remediation.Finding
	}{
		"never seen, unread":                       {remediation.Object{Presence: unread}, remediation.Hindered},
		"never seen, unread, refused":              {remediation.Object{Presence: unread, Refused: true}, remediation.Hindered},
		"never seen, absent":                       {remediation.Object{Presence: absent}, remediation.Missing},
		"never seen, absent, may be made again":    {remediation.Object{Presence: absent, Again: true}, remediation.Missing},
		"never seen, refused":                      {remediation.Object{Presence: absent, Refused: true}, remediation.Refused},
		"never seen, ours":                         {remediation.Object{Presence: present, UID: "a", OwnMarks: true}, remediation.Found},
		"never seen, ours, may be made again":      {remediation.Object{Presence: present, UID: "a", OwnMarks: true, Again: true}, remediation.Found},
		"never seen, another's":                    {remediation.Object{Presence: present, UID: "a"}, remediation.Taken},
		"never seen, another's, may be made again": {remediation.Object{Presence: present, UID: "a", Again: true}, remediation.Taken},
		"never seen, another's without a uid":      {remediation.Object{Presence: present}, remediation.Taken},
		"known, unread":                            {remediation.Object{KnownUID: "a", Presence: unread}, remediation.Recognized},
		"known, there":                             {remediation.Object{KnownUID: "a", Presence: present, UID: "a", OwnMarks: true}, remediation.Recognized},
		"known, there, without its marks":          {remediation.Object{KnownUID: "a", Presence: present, UID: "a"}, remediation.Recognized},
		"known, may be made again, there":          {remediation.Object{KnownUID: "a", Presence: present, UID: "a", Again: true}, remediation.Recognized},
		"known, absent":                            {remediation.Object{KnownUID: "a", Presence: absent}, remediation.Lost},
		"known, absent, may be made again":         {remediation.Object{KnownUID: "a", Presence: absent, Again: true}, remediation.Missing},
		"known, another with its marks":            {remediation.Object{KnownUID: "a", Presence: present, UID: "b", OwnMarks: true}, remediation.Lost},
		"known, another without":                   {remediation.Object{KnownUID: "a", Presence: present, UID: "b"}, remediation.Lost},
		"known, made again by somebody":            {remediation.Object{KnownUID: "a", Presence: present, UID: "b", OwnMarks: true, Again: true}, remediation.Found},
		"known, may be made again, another's":      {remediation.Object{KnownUID: "a", Presence: present, UID: "b", Again: true}, remediation.Taken},
	} {
		if got := x.object.Find(); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestEvaluate: a verdict counts whenever it comes; without one the time runs out.
func TestEvaluate(t *testing.T) {
	healthy, unhealthy, none := healthrule.Result{State: healthrule.Healthy}, healthrule.Result{State: healthrule.Unhealthy}, healthrule.Result{State: healthrule.Unknown}
	for name, x := range map[string]struct {
		health healthrule.Result
		since  time.Time
		limit  time.Duration
		want   remediation.Outcome
		left   time.Duration
	}{
		"healthy":                     {healthy, now.Add(-time.Minute), time.Hour, remediation.Succeeded, 0},
		"healthy, late":               {healthy, now.Add(-2 * time.Hour), time.Hour, remediation.Succeeded, 0},
		"unhealthy":                   {unhealthy, now.Add(-time.Minute), time.Hour, remediation.Failed, 0},
		"unhealthy, late":             {unhealthy, now.Add(-2 * time.Hour), time.Hour, remediation.Failed, 0},
		"unknown":                     {none, now.Add(-time.Minute), time.Hour, remediation.Waiting, 59 * time.Minute},
		"unknown since now":           {none, now, time.Hour, remediation.Waiting, time.Hour},
		"unknown since nobody knows":  {none, time.Time{}, time.Hour, remediation.TimedOut, 0},
		"unknown, at the last moment": {none, now.Add(-time.Hour), time.Hour, remediation.Waiting, 0},
		"unknown, a moment later":     {none, now.Add(-time.Hour - 1), time.Hour, remediation.TimedOut, 0},
		"unknown for ever":            {none, now.Add(-1000 * time.Hour), 0, remediation.Waiting, 0},
		"unknown for ever, since now": {none, now, 0, remediation.Waiting, 0},
		"unknown since a while ahead": {none, now.Add(time.Hour), time.Hour, remediation.Waiting, 2 * time.Hour},
		"unknown since years ahead":   {none, now.Add(time.Hour + 1), time.Hour, remediation.TimedOut, 0},
	} {
		v := remediation.VerdictTimeout{Since: x.since, Timeout: x.limit}.Evaluate(x.health, now)
		if v.Outcome != x.want || v.Left != x.left {
			t.Errorf("%s: %s, left %s, want %s, %s", name, v.Outcome, v.Left, x.want, x.left)
		}
		if timedOut := v.Health.Reason == healthrule.ReasonUnknownTimeout; timedOut != (x.want == remediation.TimedOut) {
			t.Errorf("%s: health %+v", name, v.Health)
		}
	}
}

// TestLeft: a beginning within one limit ahead is waited for, one further ahead is over.
func TestLeft(t *testing.T) {
	for _, x := range []struct{ began, left time.Duration }{
		{-2 * time.Hour, -time.Hour}, {-time.Hour, 0}, {0, time.Hour}, {time.Hour, 2 * time.Hour}, {time.Hour + 1, -1}, {10000 * time.Hour, -1},
	} {
		if got := remediation.Left(now.Add(x.began), time.Hour, now); got != x.left {
			t.Errorf("began %s from now: %s left, want %s", x.began, got, x.left)
		}
	}
}
