package reconciler_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestAReadyConditionAloneGivesNoNodeBack: a machine is off after its maintenance, and its
// Node reports Ready as before. What a kubelet writes is looked at only when a node would be
// released, and not when it cannot be read.
func TestAReadyConditionAloneGivesNoNodeBack(t *testing.T) {
	w := newWorld(t, "cloud", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	looks, away := 0, errors.New("the API server is away")
	state, err := kubelet.Unknown, away
	w.kubelet = func(string) (kubelet.State, error) { looks++; return state, err }
	w.node("n1", true)
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing))
	w.pass(30 * time.Minute)
	if looks != 0 {
		t.Errorf("%d looks at the kubelet before the end of the maintenance", looks)
	}
	w.cloud.announce(planned("m1", "i-n1", announcement.Completed))
	w.pass(30 * time.Minute)
	err = nil
	w.pass(10 * time.Minute)
	state = kubelet.Silent
	w.pass(10 * time.Minute)
	w.want("while its kubelet is not known to be alive", "fault n1 m1")
	state = kubelet.Alive
	w.pass(time.Minute)
	w.want("when it is", "fault n1 m1", "healthy n1 m1")
}

// TestAKubeletThatStaysUnknownIsReported: it is unknown whether a kubelet is alive, round
// after round. The node is not released, and a person is asked when its time is over.
func TestAKubeletThatStaysUnknownIsReported(t *testing.T) {
	w := newWorld(t, "cloud", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	var away error
	w.kubelet = func(string) (kubelet.State, error) { return kubelet.Unknown, away }
	w.node("n1", true)
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing))
	w.pass(30 * time.Minute)
	w.cloud.announce(planned("m1", "i-n1", announcement.Completed))
	w.pass(30 * time.Minute)
	w.want("while its time is not over", "fault n1 m1")
	away = errors.New("the API server rejects to say")
	w.pass(2 * time.Hour)
	w.want("when it is", "fault n1 m1", "notice n1 m1")
	w.kubelet = func(string) (kubelet.State, error) { return kubelet.Alive, nil }
	w.pass(time.Minute)
	w.want("when its kubelet is alive", "fault n1 m1", "notice n1 m1", "healthy n1 m1")
}
