package decision

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Records that only a newer version may change stand beside the others: what they are
// known to contain counts, nothing is written to them, and no release goes past them.

// excludeNewer takes the pending records out that are for a newer version to evaluate. All
// others are evaluated as before.
func (f *fold) excludeNewer() {
	ours := func(r record.Record) bool { return record.NeedsNewer(r) == "" }
	if !slices.ContainsFunc(f.Pending, func(r record.Record) bool { return !ours(r) }) {
		return
	}
	pending := f.Pending
	f.Pending = nil
	for _, r := range pending {
		if ours(r) {
			f.Pending = append(f.Pending, r)
			continue
		}
		f.newer = f.newer || r.IsFault()
		f.waitForNewer(r)
	}
}

// waitForNewer notes that something of the node waits for a newer version.
func (f *fold) waitForNewer(r record.Record) {
	f.waiting, f.detail = WaitNewer, "record "+r.ID+": "+record.NeedsNewer(r)
}

// newerOpen is an open record that is for a newer version to change; nil if there is none.
func (f *fold) newerOpen() *record.Record {
	i := slices.IndexFunc(f.open, func(r record.Record) bool { return record.NeedsNewer(r) != "" })
	if i < 0 {
		return nil
	}
	return &f.open[i]
}

// beyond reports whether a recovery has to wait for a newer version: it ends a fault that is
// for one to end, or the session while a fault waits that only one can evaluate.
func (f *fold) beyond(recovery record.Record) bool {
	theirs := f.newerOpen()
	if theirs == nil && !f.newer {
		return false
	}
	left := false
	for _, r := range f.open {
		after := clone(r)
		cleared := f.clearFrom(&after, recovery) > 0
		if cleared && record.NeedsNewer(r) != "" {
			f.waitForNewer(r)
			return true
		}
		left = left || !after.Status.AllCleared()
	}
	return f.newer && !left && len(f.open) > 0
}
