package reconciler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// A time that was up before anything was sent keeps what the provider reported last.
func TestTimeoutKeepsFinalError(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	busy := &provider.Error{Delivery: provider.NotSent, Message: "ForceRestart: HTTP 400: iLO.2.37.UnableToModifyDuringSystemPOST"}
	for name, tt := range map[string]struct {
		before func(*v1alpha1.RebootNode)
		want   string
	}{
		"nothing was tried": {func(*v1alpha1.RebootNode) {}, ""},
		"not sent": {func(o *v1alpha1.RebootNode) {
			o.Status.Signals = 1
			disarm(o, now, earlier{}, busy)
		}, ", most recently: not sent yet: " + busy.Error()},
		"perhaps sent, which has a condition of its own": {func(o *v1alpha1.RebootNode) {
			at := metav1.NewTime(now)
			o.Status.Signals, o.Status.SignalSentAt = 1, &at
			unanswered(o, now, busy)
		}, ""},
	} {
		object := &v1alpha1.RebootNode{Spec: v1alpha1.RebootNodeSpec{NodeName: "gpu-1"}}
		tt.before(object)
		kind := RebootNode()
		reason, message := kind.outcomeOf(repair.Verdict{Step: repair.Fail, Reason: repair.TimeUp}, object)
		if want := "the timeout expired before node gpu-1 " + kind.hoped + tt.want; reason != v1alpha1.ReasonTimeout || message != want {
			t.Errorf("%s: %s %q, want %q", name, reason, message, want)
		}
	}
}
