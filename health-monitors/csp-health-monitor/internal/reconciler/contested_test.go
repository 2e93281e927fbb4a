package reconciler_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// claim makes a Node whose kubelet claims the machine of another.
func (w *world) claim(name, machine string) {
	w.node(name, true)
	w.nodes[name].Spec.ProviderID = machine
}

// A Node whose kubelet claims the machine of another is not taken out of service for that
// machine's maintenance, and neither is the other, unless the provider's own name of the
// machine shows which of them it is.
func TestClaimsOfOneMachine(t *testing.T) {
	w := newWorld(t, "rivals", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	w.node("n1", true)
	w.node("n2", true)
	w.claim("evil", "i-n1") // before n1 by its name, and ready
	w.claim("evil2", "i-n2")
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing), planned("m2", "i-n2", announcement.Ongoing))
	contested := func(want float64) {
		t.Helper()
		if got := testutil.ToFloat64(w.metrics.Contested); got != want {
			t.Errorf("%v machines are contested, want %v", got, want)
		}
	}
	w.pass(2 * time.Minute)
	w.want("two machines of which the provider says nothing")
	contested(2)
	if got := testutil.ToFloat64(w.metrics.Waiting.WithLabelValues("contested")); got != 2 {
		t.Errorf("%v maintenances wait for that, want 2", got)
	}

	w.cloud.names = map[string][]string{"i-n1": {"n1", "n1.internal"}, "i-n2": {"n2-renamed"}}
	w.pass(2 * time.Minute)
	w.want("the provider names one of them", "fault n1 m1")
	contested(1)

	// It is released although it is still claimed, and the other only when it is not.
	w.cloud.announce(planned("m1", "i-n1", announcement.Completed), planned("m2", "i-n2", announcement.Ongoing))
	w.pass(20 * time.Minute)
	w.want("the first has ended", "fault n1 m1", "healthy n1 m1")
	delete(w.nodes, "evil2")
	w.pass(2 * time.Minute)
	w.want("the second is one node's again", "fault n1 m1", "healthy n1 m1", "fault n2 m2")
	contested(0)

	// A claim that comes later holds back no more than the release, and that only as long
	// as the provider does not name the machine.
	w.claim("evil3", "i-n2")
	w.cloud.announce(planned("m2", "i-n2", announcement.Completed))
	w.cloud.names = nil
	w.pass(time.Hour)
	w.want("claimed after the quarantine", "fault n1 m1", "healthy n1 m1", "fault n2 m2")
	w.cloud.fails = errors.New("it burns")
	w.pass(2 * time.Minute)
	w.cloud.fails = nil
	w.cloud.names = map[string][]string{"i-n2": {"n2"}}
	w.pass(2 * time.Minute)
	w.want("and proven", "fault n1 m1", "healthy n1 m1", "fault n2 m2", "healthy n2 m2")
}

// The provider is asked about so many contested machines in one reading and no more, and
// about none while there is none.
func TestContestedMachinesAreBounded(t *testing.T) {
	w := newWorld(t, "many", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	w.node("n1", true)
	w.pass(2 * time.Minute)
	if len(w.cloud.contested) != 0 {
		t.Errorf("names were asked for: %v", w.cloud.contested)
	}
	for i := range reconciler.MaxContested + 1 {
		w.claim(fmt.Sprintf("a%d", i), fmt.Sprintf("i-%d", i))
		w.claim(fmt.Sprintf("b%d", i), fmt.Sprintf("i-%d", i))
	}
	w.pass(time.Minute)
	if len(w.cloud.contested) != 1 || len(w.cloud.contested[0]) != reconciler.MaxContested {
		t.Errorf("names were asked for %d times", len(w.cloud.contested))
	}
	if got := testutil.ToFloat64(w.metrics.Contested); got != reconciler.MaxContested+1 {
		t.Errorf("%v machines are contested, want %d", got, reconciler.MaxContested+1)
	}
}
