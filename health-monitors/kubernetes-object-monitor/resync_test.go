package kubernetesobjectmonitor

import (
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// TestTimeAloneIsSeenWithinAPeriod: a predicate that compares the time in a form
// that cannot be scheduled is evaluated again at the object's turn.
func TestTimeAloneIsSeenWithinAPeriod(t *testing.T) {
	fake := testclock.NewFakeClock(time.Now())
	begin, end := fake.Now().Add(time.Hour), fake.Now().Add(1000*time.Hour)
	w := newWorld(t, fmt.Sprintf(`[[policies]]
name = "Hours"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Node"
[policies.predicate]
expression = "resource.metadata.name == 'kom-hours-1' && now > timestamp('%s') && now < timestamp('%s')"
[policies.healthEvent]
componentClass = "Node"
message = "within the hours"
recommendedAction = "NONE"
`, begin.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339)))
	w.clock = fake
	w.node("kom-hours-1", nil)
	w.run()
	w.until(fake, time.Minute, 1)
	w.expect("fault Hours kom-hours-1 v1/Node kom-hours-1")
	fake.Step(1000 * time.Hour)
	w.until(fake, time.Minute, 2)
	w.expect("fault Hours kom-hours-1 v1/Node kom-hours-1", "recovery Hours kom-hours-1 v1/Node kom-hours-1")
}
