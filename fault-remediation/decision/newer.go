package decision

import "github.com/nvidia/nvsentinel/data-models/record"

// newer is the wait of a node with an unsettled record that only a newer version may
// change. The whole node waits: what that version has done, or is about to do, may not be
// visible to this one, and a machine has one repair at a time.
func newer(records []record.Record) (Step, bool) {
	for _, r := range records {
		if why := record.NeedsNewer(r); why != "" && (record.Open(r) || Unsettled(r)) {
			return Step{Reason: WaitNewer, After: watched, Message: "record " + r.ID + ": " + why}, true
		}
	}
	return Step{}, false
}
