package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/iterator"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

const (
	// instancePage is the most that aggregatedList lists at once
	// (source: https://cloud.google.com/compute/docs/reference/rest/v1/instances/aggregatedList).
	instancePage = 500
	// overlap is how far before the checkpoint the log is read again, for lines that
	// arrive late.
	overlap = time.Hour
	// first is how far back the log is read without a checkpoint: maintenance is
	// announced weeks before.
	first = 30 * 24 * time.Hour
	// grace is how long after the end of its window a maintenance counts as over which
	// the instance no longer shows and whose end the log does not report. The end is "the
	// time by which the maintenance disruption will be completed".
	grace = time.Hour
)

// Read lists all instances, and the log since the checkpoint: its first time is that of
// the last question, its second, if any, that of the oldest line that is still needed.
func (s *Source) Read(ctx context.Context, q announcement.Question) (announcement.Reading, error) {
	since, err := window(q)
	if err != nil {
		return announcement.Reading{}, err
	}
	calls, o := 0, opened(q)
	seen, err := s.listInstances(ctx, o, &calls)
	if err != nil {
		return announcement.Reading{}, err
	}
	r := announcement.Reading{Announcements: seen.shown, Complete: seen.complete, Checkpoint: q.Now.UTC().Format(time.RFC3339)}
	if s.logs != nil {
		lines, err := s.lines(ctx, since, q.Now, &calls)
		if err != nil {
			return announcement.Reading{}, err
		}
		var oldest time.Time
		r.Announcements, oldest = fold(lines, seen, o)
		if !oldest.IsZero() {
			r.Checkpoint += " " + oldest.UTC().Format(time.RFC3339)
		}
	}
	slices.SortFunc(r.Announcements, announcement.Compare)
	r.Calls = calls
	return r, nil
}

// window is the time from which on the log is read.
func window(q announcement.Question) (time.Time, error) {
	if q.Checkpoint == "" {
		return q.Now.Add(-first), nil
	}
	until, oldest, _ := strings.Cut(q.Checkpoint, " ")
	since, err := time.Parse(time.RFC3339, until)
	since = since.Add(-overlap)
	if err == nil && oldest != "" {
		var at time.Time
		if at, err = time.Parse(time.RFC3339, oldest); at.Before(since) {
			since = at
		}
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the checkpoint %q as times: %w, empty the checkpoint to start again", q.Checkpoint, err)
	}
	return since, nil
}

// open is what is open at the time of a question.
type open struct {
	now time.Time
	ids map[string]bool
	// announced are the latest begins of those that were announced, by instance: the
	// second parts of their ids. Those that came unannounced have a third.
	announced map[string][]string
}

func opened(q announcement.Question) open {
	o := open{now: q.Now, ids: make(map[string]bool, len(q.Open)), announced: map[string][]string{}}
	for _, id := range slices.Sorted(slices.Values(q.Open)) {
		o.ids[id] = true
		if instance, rest, ok := strings.Cut(id, "/"); ok && !strings.Contains(rest, "/") {
			o.announced[instance] = append(o.announced[instance], rest)
		}
	}
	return o
}

// sight is what Compute Engine shows.
type sight struct {
	shown     []announcement.Announcement
	byID      map[string]*computepb.Instance
	maintains map[string]int // index in shown by the instance's id
	complete  bool           // no zone was out of reach
	project   string
}

// listInstances lists all instances.
func (s *Source) listInstances(ctx context.Context, o open, calls *int) (sight, error) {
	size := uint32(instancePage)
	request := &computepb.AggregatedListInstancesRequest{Project: s.project, MaxResults: &size}
	if s.filter != "" {
		request.Filter = &s.filter
	}
	out := sight{byID: map[string]*computepb.Instance{}, maintains: map[string]int{}, complete: true, project: s.project}
	scopes := s.instances.AggregatedList(ctx, request, gax.WithRetry(again))
	fetch, last := scopes.InternalFetch, ""
	scopes.InternalFetch = func(size int, token string) (part []pair, next string, err error) {
		*calls++
		if part, next, err = fetch(size, token); err == nil && next != "" && next == last {
			err = errors.New("a page refers to itself")
		}
		last = next
		return part, next, err
	}
	for {
		scope, err := scopes.Next()
		if errors.Is(err, iterator.Done) {
			return out, nil
		}
		if err != nil {
			return sight{}, fmt.Errorf("listing instances, page %d: %w", *calls, refused(err))
		}
		if w := scope.Value.GetWarning(); w != nil && w.GetCode() != computepb.Warning_NO_RESULTS_ON_PAGE.String() {
			out.complete = false // what is not listed there is not known
		}
		for _, i := range scope.Value.GetInstances() {
			out.add(i, o)
		}
	}
}

// add notes an instance, and the maintenance it shows.
func (s *sight) add(i *computepb.Instance, o open) {
	id := strconv.FormatUint(i.GetId(), 10)
	s.byID[id] = i
	m := i.GetResourceStatus().GetUpcomingMaintenance()
	if m == nil {
		return
	}
	n := notice{
		Status: m.GetMaintenanceStatus(), Type: m.GetType(), Start: m.GetWindowStartTime(), End: m.GetWindowEndTime(),
		Latest: m.GetLatestWindowStartTime(), Reasons: m.GetMaintenanceReasons(), CanReschedule: m.GetCanReschedule(),
	}
	a := n.announce(upcoming, id, machine(s.project, i), o)
	if on := i.GetScheduling().GetOnHostMaintenance(); on != "" {
		a.Metadata["onHostMaintenance"] = on
	}
	s.maintains[id] = len(s.shown)
	s.shown = append(s.shown, a)
}

// machine is an instance as it stands in a Node's provider id.
func machine(project string, i *computepb.Instance) string {
	return project + "/" + path.Base(i.GetZone()) + "/" + i.GetName()
}

// notice is the notification of a maintenance, as the instance shows it and as the log
// carries it (source: UpcomingMaintenance in the description of the resource instances).
type notice struct {
	Status        string   `json:"maintenanceStatus"`
	Type          string   `json:"type"`
	Start         string   `json:"windowStartTime"`
	End           string   `json:"windowEndTime"`
	Latest        string   `json:"latestWindowStartTime"`
	Reasons       []string `json:"maintenanceReasons"`
	CanReschedule bool     `json:"canReschedule"`
}

// announce is a notice of an instance as an announcement.
func (n notice) announce(method, instance, machine string, o open) announcement.Announcement {
	m := meaning(method, n.Reasons)
	a := announcement.Announcement{
		Machine: machine, Code: m.Name, State: stateOf(n.Status), Action: m.Action,
		Unplanned: m.Unplanned || unplanned(n.Type), Emergency: m.Emergency, Begin: when(n.Start), End: when(n.End),
		Metadata: map[string]string{
			"instanceId": instance, "maintenanceStatus": n.Status, "type": n.Type, "latestWindowStartTime": n.Latest,
			"maintenanceReasons": strings.Join(n.Reasons, ","), "canReschedule": strconv.FormatBool(n.CanReschedule),
		},
	}
	a.ID = identify(instance, n, o)
	return a
}

// identify is the id of a maintenance: the instance and the latest begin. Where the
// latest begin is not reported, or moved although it should not, an id that is open stays
// it: if it begins then, if its time has not come, or if it is under way now. An open
// one whose time has passed is another maintenance than one that is still to come.
func identify(instance string, n notice, o open) string {
	key := n.Latest
	if key == "" {
		key = n.Start
	}
	if slices.Contains(o.announced[instance], key) {
		return instance + "/" + key
	}
	for _, was := range o.announced[instance] {
		if was == n.Start || was == "" || n.Status == "ONGOING" || when(was).After(o.now) {
			return instance + "/" + was
		}
	}
	return instance + "/" + key
}

// when is a moment as Google Cloud writes it; zero for anything else.
func when(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
