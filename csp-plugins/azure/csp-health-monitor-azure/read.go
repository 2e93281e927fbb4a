package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resourcegraph/armresourcegraph"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// graphPage is the most rows that Resource Graph answers with
// (source: https://learn.microsoft.com/en-us/azure/governance/resource-graph/concepts/work-with-data).
const graphPage = 1000

// updates is the question to Resource Graph: each update of each resource in a row
// (source: https://learn.microsoft.com/en-us/azure/service-health/resource-graph-impacted-samples).
const updates = `maintenanceresources | where type =~ 'microsoft.maintenance/updates' | mv-expand update = properties.value | project id, name, update | order by id asc, tostring(update) asc`

var (
	yes    = "true"
	expand = "instanceView"
)

// Read lists all machines of the subscription, the instances of the scale sets of the
// cluster, and all updates. It keeps no checkpoint: the lists are whole.
func (s *Source) Read(ctx context.Context, q announcement.Question) (announcement.Reading, error) {
	calls, o := 0, opened(q)
	shown, err := s.views(ctx, o, s.setsOf(q), &calls)
	if err != nil {
		return announcement.Reading{}, err
	}
	var reported []announcement.Announcement
	if s.graph != nil {
		if reported, err = s.updates(ctx, o, &calls); err != nil {
			return announcement.Reading{}, err
		}
	}
	return announcement.Reading{Announcements: join(shown, reported, o), Complete: true, Calls: calls}, nil
}

// views lists the machines and instances that show a maintenance.
func (s *Source) views(ctx context.Context, o open, sets []scaleSet, calls *int) ([]announcement.Announcement, error) {
	var out []announcement.Announcement
	for pager := s.machines.NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{StatusOnly: &yes}); pager.More(); {
		*calls++
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing machines, call %d: %w", *calls, refused(err))
		}
		for _, m := range page.Value {
			if m.Properties != nil && m.Properties.InstanceView != nil && m.Properties.InstanceView.MaintenanceRedeployStatus != nil {
				out = append(out, ofView(announcement.Value(m.ID), *m.Properties.InstanceView.MaintenanceRedeployStatus, o))
			}
		}
	}
	for _, set := range sets {
		instances, err := s.instances(ctx, set, o, calls)
		if err != nil {
			return nil, err
		}
		out = append(out, instances...)
	}
	return out, nil
}

// scaleSet is a uniform scale set.
type scaleSet struct{ group, name string }

// setsOf are the scale sets of the cluster's machines and of what is open.
func (s *Source) setsOf(q announcement.Question) []scaleSet {
	found := map[scaleSet]bool{}
	add := func(machine string) {
		if part := strings.Split(machine, "/"); len(part) == 11 && part[2] == strings.ToLower(s.subscription) {
			found[scaleSet{part[4], part[8]}] = true
		}
	}
	for _, m := range q.Machines {
		add(m.Name)
	}
	for _, id := range q.Open {
		machine, _, _ := strings.Cut(id, "|")
		add(machine)
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b scaleSet) int {
		return strings.Compare(a.group+"/"+a.name, b.group+"/"+b.name)
	})
}

// instances lists those of a scale set that show a maintenance; none if there is no
// such set any more.
func (s *Source) instances(ctx context.Context, set scaleSet, o open, calls *int) ([]announcement.Announcement, error) {
	var out []announcement.Announcement
	for pager := s.sets.NewListPager(set.group, set.name, &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: &expand}); pager.More(); {
		*calls++
		page, err := pager.NextPage(ctx)
		if status(err) == http.StatusNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the instances of the scale set %s in %s, call %d: %w", set.name, set.group, *calls, refused(err))
		}
		for _, m := range page.Value {
			if m.Properties != nil && m.Properties.InstanceView != nil && m.Properties.InstanceView.MaintenanceRedeployStatus != nil {
				out = append(out, ofView(announcement.Value(m.ID), *m.Properties.InstanceView.MaintenanceRedeployStatus, o))
			}
		}
	}
	return out, nil
}

// ofView is the maintenance that an instance view shows.
func ofView(resource string, m armcompute.MaintenanceRedeployStatus, o open) announcement.Announcement {
	c, machine := announcement.Find(codes, redeploy), strings.ToLower(resource)
	a := announcement.Announcement{
		Machine: machine, Code: c.Name, Action: c.Action, State: stateOfView(m, o.now), Text: announcement.Value(m.LastOperationMessage),
		Begin: announcement.Value(m.MaintenanceWindowStartTime), End: announcement.Value(m.MaintenanceWindowEndTime),
		Metadata: map[string]string{
			"isCustomerInitiatedMaintenanceAllowed": fmt.Sprint(announcement.Value(m.IsCustomerInitiatedMaintenanceAllowed)),
			"lastOperationResultCode":               string(announcement.Value(m.LastOperationResultCode)),
		},
	}
	for name, at := range map[string]*time.Time{"preMaintenanceWindowStartTime": m.PreMaintenanceWindowStartTime, "preMaintenanceWindowEndTime": m.PreMaintenanceWindowEndTime} {
		if at != nil {
			a.Metadata[name] = at.UTC().Format(time.RFC3339)
		}
	}
	a.ID = standing(a, "redeploy/"+moment(a.Begin), o)
	return a
}

// moment is a time as ids have it; empty where there is none.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// standing is the id of a maintenance by its key. Azure gives what an instance view
// shows no id: if its window moves before it has come, or while it is under way, it
// stays what is open.
func standing(a announcement.Announcement, key string, o open) string {
	id := a.Machine + "|" + key
	if o.ids[id] {
		return id
	}
	for _, was := range o.shown[a.Machine] {
		begin, err := time.Parse(time.RFC3339, was)
		if err != nil || begin.After(o.now) || a.State == announcement.Ongoing {
			return a.Machine + "|redeploy/" + was
		}
	}
	return id
}

// open is what is open at the time of a question.
type open struct {
	now time.Time
	ids map[string]bool
	// shown are the begins in the ids of what instance views showed, by machine.
	shown map[string][]string
}

func opened(q announcement.Question) open {
	o := open{now: q.Now, ids: make(map[string]bool, len(q.Open)), shown: map[string][]string{}}
	for _, id := range slices.Sorted(slices.Values(q.Open)) {
		o.ids[id] = true
		if machine, begin, ok := strings.Cut(id, "|redeploy/"); ok {
			o.shown[machine] = append(o.shown[machine], begin)
		}
	}
	return o
}

// update is one of Microsoft.Maintenance (source:
// https://learn.microsoft.com/en-us/rest/api/maintenance/updates/list), with the id of
// the notification that Resource Graph shows beside it.
type update struct {
	Scope          string    `json:"maintenanceScope"`
	Impact         string    `json:"impactType"`
	Status         string    `json:"status"`
	Seconds        int       `json:"impactDurationInSec"`
	NotBefore      time.Time `json:"notBefore"`
	NotificationID string    `json:"notificationId"`
}

// row is one of the answer of Resource Graph.
type row struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Update update `json:"update"`
}

// updates lists the updates of machines, and of hosts; not those of databases and the
// like.
func (s *Source) updates(ctx context.Context, o open, calls *int) ([]announcement.Announcement, error) {
	var out []announcement.Announcement
	var token *string
	for page := 1; ; page++ {
		*calls++
		answer, err := s.page(ctx, token, graphPage)
		if err != nil {
			return nil, fmt.Errorf("listing updates, page %d: %w", page, refused(err))
		}
		rows, err := rowsOf(answer)
		if err != nil {
			return nil, fmt.Errorf("listing updates, page %d: %w", page, err)
		}
		for _, r := range rows {
			machine, quiet := r.machine(), r.Update.Impact == freeze || r.Update.Impact == idle
			if strings.Contains(machine, "/providers/microsoft.compute/") && (!quiet || s.pauses) {
				out = append(out, ofUpdate(machine, r.Update, o.now))
			}
		}
		switch {
		case announcement.Value(answer.SkipToken) != "" && announcement.Value(answer.SkipToken) == announcement.Value(token):
			return nil, fmt.Errorf("listing updates: page %d refers to itself", page)
		case announcement.Value(answer.SkipToken) != "":
			token = answer.SkipToken
		case announcement.Value(answer.ResultTruncated) == armresourcegraph.ResultTruncatedTrue:
			return nil, fmt.Errorf("listing updates: page %d is truncated and names no next page", page)
		default:
			return out, nil
		}
	}
}

// page asks Resource Graph for some rows.
func (s *Source) page(ctx context.Context, token *string, rows int32) (armresourcegraph.ClientResourcesResponse, error) {
	question, objects := updates, armresourcegraph.ResultFormatObjectArray
	return s.graph.Resources(ctx, armresourcegraph.QueryRequest{
		Query: &question, Subscriptions: []*string{&s.subscription},
		Options: &armresourcegraph.QueryRequestOptions{ResultFormat: &objects, SkipToken: token, Top: &rows},
	}, nil)
}

// rowsOf reads an answer of Resource Graph, which the SDK gives as it came.
func rowsOf(answer armresourcegraph.ClientResourcesResponse) ([]row, error) {
	raw, err := json.Marshal(answer.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	var out []row
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("reading the rows: %w, upgrade to a version that supports their format", err)
	}
	return out, nil
}

// machine is the resource that the row is about: the parent of the update, or its name.
func (r row) machine() string {
	parent, _, ok := strings.Cut(strings.ToLower(r.ID), "/providers/microsoft.maintenance/")
	if ok && parent != "" {
		return parent
	}
	return strings.ToLower(r.Name)
}

// ofUpdate is an update of a machine as an announcement.
func ofUpdate(machine string, u update, now time.Time) announcement.Announcement {
	c := announcement.Find(codes, u.Impact)
	a := announcement.Announcement{
		ID: machine + "|" + u.NotificationID, Machine: machine, Code: c.Name, Action: c.Action, State: stateOfUpdate(u, now), Begin: u.NotBefore,
		Metadata: map[string]string{
			"maintenanceScope": u.Scope, "impactType": u.Impact, "status": u.Status, "notificationId": u.NotificationID,
			"impactDurationInSec": fmt.Sprint(u.Seconds),
		},
	}
	if u.NotificationID == "" {
		a.ID = machine + "|" + u.Scope + "/" + u.Impact + "/" + moment(u.NotBefore)
	}
	if !u.NotBefore.IsZero() && u.Seconds > 0 {
		a.End = u.NotBefore.Add(time.Duration(u.Seconds) * time.Second)
	}
	return a
}

// join makes one announcement of what an instance view and an update report as one
// maintenance. What has ended is announced only if it was open here.
func join(shown, reported []announcement.Announcement, o open) []announcement.Announcement {
	views := make(map[string]int, len(shown)) // a machine shows one maintenance
	for i, a := range shown {
		views[a.Machine] = i
	}
	joined := make([]bool, len(shown))
	var out []announcement.Announcement
	for _, t := range reported {
		if i, ok := views[t.Machine]; ok && !joined[i] && same(shown[i], t) {
			t, joined[i] = merge(shown[i], t, o.ids), true
		}
		out = append(out, t)
	}
	for i, a := range shown {
		if !joined[i] {
			out = append(out, a)
		}
	}
	out = slices.DeleteFunc(out, func(a announcement.Announcement) bool { return a.State.Ended() && !o.ids[a.ID] })
	slices.SortStableFunc(out, announcement.Compare)
	return slices.CompactFunc(out, func(a, b announcement.Announcement) bool { return a.ID == b.ID })
}

// same reports whether an update is what an instance view shows: it stops the machine, and
// is due between the time from which on its owner may do it and the end of the window.
func same(view, t announcement.Announcement) bool {
	if t.Code == freeze || t.Code == idle {
		return false
	}
	from := view.Begin
	if pre, err := time.Parse(time.RFC3339, view.Metadata["preMaintenanceWindowStartTime"]); err == nil {
		from = pre
	}
	return t.Begin.IsZero() || !t.Begin.Before(from) && (view.End.IsZero() || !t.Begin.After(view.End))
}

// merge is the maintenance that both report, under the id under which it is open.
func merge(view, t announcement.Announcement, stands map[string]bool) announcement.Announcement {
	if stands[view.ID] && !stands[t.ID] {
		t.ID = view.ID
	}
	t.State, t.Begin, t.End, t.Text = further(view.State, t.State), view.Begin, view.End, view.Text
	metadata := maps.Clone(view.Metadata)
	maps.Copy(metadata, t.Metadata)
	t.Metadata = metadata
	return t
}
