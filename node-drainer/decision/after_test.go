package decision

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestAfterADrainTheNodeIsKeptEmpty: the steps from the start on, each on what
// the one before leaves behind, and nothing else changes.
func TestAfterADrainTheNodeIsKeptEmpty(t *testing.T) {
	v, p, at := draining("now", 2), policy(t), start
	v.Records[0].Status.UserPodsEvictionStatus.Status, v.Node.State = record.EvictionUnset, nodemark.Quarantined
	untouched := draining("now", 2)
	untouched.Records[0].Status.UserPodsEvictionStatus.Status, untouched.Node.State = record.EvictionUnset, nodemark.Quarantined
	given := v
	var kinds []Kind
	for range 5 {
		s := Next(v, p, at)
		kinds = append(kinds, s.Kind)
		if s.EndsPass() {
			break
		}
		v = After(v, s, at)
	}
	if diff := cmp.Diff([]Kind{Start, Evict, Finish, Wait}, kinds); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	st := v.Records[0].Status
	if len(v.Pods) != 0 || v.Node.State != nodemark.DrainSucceeded || st.UserPodsEvictionStatus.Status != record.EvictionSucceeded ||
		st.DrainFinishTimestamp == nil || !st.DrainFinishTimestamp.Equal(at.Truncate(time.Microsecond)) {
		t.Errorf("left behind: %d pods, state %s, status %+v", len(v.Pods), v.Node.State, st)
	}
	if diff := cmp.Diff(untouched, given); diff != "" {
		t.Errorf("the view that was given has changed (-before +after):\n%s", diff)
	}
}

// TestAfterAStepOfOneRecordTheOthersAreAsBefore.
func TestAfterAStepOfOneRecordTheOthersAreAsBefore(t *testing.T) {
	v := draining("now", 1)
	other := v.Records[0]
	other.ID = "other"
	v.Records = append(v.Records, other)
	s := Step{Kind: Cancel}
	s.update(v.Records[0], record.EvictionCanceled, "the fault was cleared")
	after := After(v, s, start)
	if after.Records[0].Status.UserPodsEvictionStatus.Status != record.EvictionCanceled || len(after.Pods) != 1 || after.Node.State != v.Node.State {
		t.Errorf("after a cancellation: %+v", after)
	}
	if diff := cmp.Diff(other, after.Records[1]); diff != "" {
		t.Errorf("the other record has changed (-before +after):\n%s", diff)
	}
}
