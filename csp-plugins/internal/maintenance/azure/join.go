package azure

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// join makes one announcement of what an instance view and an update tell of one
// maintenance. What has ended is announced only if it was open here.
func join(shown, told []announcement.Announcement, o open) []announcement.Announcement {
	views := make(map[string]int, len(shown)) // a machine shows one maintenance
	for i, a := range shown {
		views[a.Machine] = i
	}
	joined := make([]bool, len(shown))
	var out []announcement.Announcement
	for _, t := range told {
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
	out = slices.DeleteFunc(out, func(a announcement.Announcement) bool { return ended(a.State) && !o.ids[a.ID] })
	slices.SortStableFunc(out, func(a, b announcement.Announcement) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b announcement.Announcement) bool { return a.ID == b.ID })
}

// same says whether an update is what an instance view shows: it stops the machine, and
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

// merge is the maintenance that both tell of, under the id under which it is open.
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
