package kubernetesobjectmonitor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/internal/checkpoint"
)

// rejecting is a connector that knows the name as another agent's.
func rejecting(name string) func(*protos.HealthEvent) *protos.HealthEventResult {
	return func(e *protos.HealthEvent) *protos.HealthEventResult {
		if e.GetCheckName() == name {
			return &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED, Problem: "check " + name + " belongs to another agent"}
		}
		return &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED}
	}
}

// TestARejectedPolicyMutesNoOther: a policy whose name the connectors gave to another
// agent. The events of the others go out, before and after it is renamed; its own are
// dead letters, and its faults are reported once it has another name.
func TestARejectedPolicyMutesNoOther(t *testing.T) {
	w := newWorld(t, broken("Foreign", "kom-rejected")+broken("Good", "kom-rejected"))
	w.connector.Answer(rejecting("Foreign"))
	w.node("kom-rejected-1", map[string]string{"test/broken": "true"})
	running := w.run()
	w.expect("fault Good kom-rejected-1 v1/Node kom-rejected-1")
	w.await("a dead letter", func() bool { return len(w.deadLetters()) == 1 })
	if l := w.deadLetters()[0]; !strings.Contains(string(l.Event), `"Foreign"`) || l.Reason != "check Foreign belongs to another agent" || l.At.IsZero() {
		t.Errorf("dead letter %+v", l)
	}
	began := time.Now()
	w.node("kom-rejected-2", map[string]string{"test/broken": "true"})
	w.expect("fault Good kom-rejected-1 v1/Node kom-rejected-1", "fault Good kom-rejected-2 v1/Node kom-rejected-2")
	t.Logf("beside a rejected policy a fault was published within %s", time.Since(began))
	w.write(broken("Renamed", "kom-rejected") + broken("Good", "kom-rejected"))
	all := w.connector.Await(t, "the renamed policy's faults", func(all []*protos.HealthEvent) bool { return len(all) >= 4 })
	got := stories(all[2:])
	slices.Sort(got)
	want := []string{"fault Renamed kom-rejected-1 v1/Node kom-rejected-1 ", "fault Renamed kom-rejected-2 v1/Node kom-rejected-2 "}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	running.Stop()
	before := len(w.deadLetters())
	w.connector.Answer(nil)
	w.run()
	w.label("kom-rejected-1", "false")
	w.connector.Await(t, "recoveries after a restart", func(all []*protos.HealthEvent) bool { return len(all) >= 6 })
	if after := len(w.deadLetters()); after < before || before == 0 {
		t.Errorf("%d dead letters after a restart, %d before", after, before)
	}
}

// TestAFaultThatWasRejectedIsReportedOnceTheNameIsGiven, when its object is evaluated next.
func TestAFaultThatWasRejectedIsReportedOnceTheNameIsGiven(t *testing.T) {
	w := newWorld(t, broken("Given", "kom-given"))
	start := time.Now()
	fake := testclock.NewFakeClock(start)
	w.clock = fake
	w.connector.Answer(rejecting("Given"))
	w.node("kom-given-1", map[string]string{"test/broken": "true"})
	w.run()
	w.await("a dead letter", func() bool {
		if fake.HasWaiters() {
			fake.Step(time.Millisecond)
		}
		return len(w.deadLetters()) > 0
	})
	w.connector.Answer(nil)
	w.until(fake, 30*time.Second, 1)
	w.expect("fault Given kom-given-1 v1/Node kom-given-1")
	if passed := fake.Since(start); passed < 10*time.Minute {
		t.Errorf("it was reported again %s after it was rejected, want 10m or more", passed)
	}
}

// await polls.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		w.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// deadLetters are those in the state.
func (w *world) deadLetters() (out []checkpoint.DeadLetter) {
	w.t.Helper()
	state, err := w.cluster.Client().CoreV1().ConfigMaps(w.namespace).Get(w.t.Context(), "kubernetes-object-monitor-state", metav1.GetOptions{})
	if err != nil || state.Data["dead-letters.json"] == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(state.Data["dead-letters.json"]), &out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// TestANameOfAnotherAgentIsNotTakenOver: the changed file is refused with an Event, and the
// policies before it stay active; once the connectors give the name, it is taken over.
func TestANameOfAnotherAgentIsNotTakenOver(t *testing.T) {
	w := newWorld(t, broken("Good", "kom-reserved"))
	publishers := filepath.Join(t.TempDir(), "connector.toml")
	give := func(checks string) {
		t.Helper()
		text := "[[publishers.agent]]\nname = \"gpu-health-monitor\"\nchecks = [\"Gpu*\"]\n[[publishers.agent]]\nname = \"kubernetes-object-monitor\"\nchecks = [" + checks + "]\n"
		if err := os.WriteFile(publishers+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(publishers+".new", publishers); err != nil {
			t.Fatal(err)
		}
	}
	give("")
	w.run("--publishers-config-path", publishers)
	// A monitor that reads this file first does not start.
	w.node("kom-reserved-1", map[string]string{"test/broken": "true"})
	w.expect("fault Good kom-reserved-1 v1/Node kom-reserved-1")
	w.write(broken("GpuBroken", "kom-reserved") + broken("Good", "kom-reserved"))
	w.await("an Event", func() bool {
		list, err := w.cluster.Client().CoreV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == "PoliciesRefused" && strings.Contains(e.Message, `policies[0] ("GpuBroken"): name: "GpuBroken" belongs to agent "gpu-health-monitor"`)
		})
	})
	w.node("kom-reserved-2", map[string]string{"test/broken": "true"})
	w.expect("fault Good kom-reserved-1 v1/Node kom-reserved-1", "fault Good kom-reserved-2 v1/Node kom-reserved-2")
	give(`"GpuBroken"`)
	events := stories(w.connector.Await(t, "4 events", func(all []*protos.HealthEvent) bool { return len(all) >= 4 }))
	for _, node := range []string{"kom-reserved-1", "kom-reserved-2"} {
		if want := "fault GpuBroken " + node + " v1/Node " + node + " "; !slices.Contains(events[2:], want) {
			t.Errorf("events:\n%s\nwant %s among the last", strings.Join(events, "\n"), want)
		}
	}
}

// withCodes is a policy with error codes.
func withCodes(policy, codes string) string {
	return strings.Replace(policy, "isFatal = true\n", "isFatal = true\nerrorCode = ["+codes+"]\n", 1)
}

// TestEachCodeThatWasRejectedIsReportedOnceTheNameIsGiven: whether all codes of a match were
// rejected or one of them, which leaves the other one open.
func TestEachCodeThatWasRejectedIsReportedOnceTheNameIsGiven(t *testing.T) {
	for _, tc := range []struct {
		name         string
		rejected     int
		before, then []string
	}{
		{"all", 2, nil, []string{"A", "B"}},
		{"one", 1, []string{"A"}, []string{"B"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := "kom-codes-" + tc.name
			w := newWorld(t, withCodes(broken("Given", node), `"A", "B"`))
			fake := testclock.NewFakeClock(time.Now())
			w.clock = fake
			refuse := rejecting("Given")
			w.connector.Answer(func(e *protos.HealthEvent) *protos.HealthEventResult {
				if slices.Contains(tc.before, e.GetErrorCode()[0]) {
					return refuse(&protos.HealthEvent{})
				}
				return refuse(e)
			})
			w.node(node, map[string]string{"test/broken": "true"})
			w.run()
			w.await("the dead letters", func() bool {
				if fake.HasWaiters() {
					fake.Step(time.Millisecond)
				}
				return len(w.deadLetters()) == tc.rejected
			})
			w.connector.Answer(nil)
			w.until(fake, 30*time.Second, 2)
			var want []string
			for _, code := range append(tc.before, tc.then...) {
				want = append(want, fmt.Sprintf("fault Given %s v1/Node %s %s", node, node, code))
			}
			if got := stories(w.connector.Distinct(t)); !slices.Equal(got, want) {
				t.Errorf("events %q, want %q", got, want)
			}
		})
	}
}

// TestARecoveryThatWasRejectedIsSentOnceTheNameIsGiven, of an object that recovers and of one
// that is gone.
func TestARecoveryThatWasRejectedIsSentOnceTheNameIsGiven(t *testing.T) {
	w := newWorld(t, withCodes(broken("Given", "kom-ended"), `"A", "B"`))
	fake := testclock.NewFakeClock(time.Now())
	w.clock = fake
	w.node("kom-ended-1", map[string]string{"test/broken": "true"})
	w.node("kom-ended-2", map[string]string{"test/broken": "true"})
	w.run()
	w.until(fake, time.Millisecond, 4)
	w.connector.Answer(rejecting("Given"))
	w.label("kom-ended-1", "false")
	if err := w.cluster.DeleteNode(t.Context(), "kom-ended-2"); err != nil {
		t.Fatal(err)
	}
	w.await("the dead letters", func() bool {
		if fake.HasWaiters() {
			fake.Step(time.Millisecond)
		}
		return len(w.deadLetters()) == 4
	})
	w.connector.Answer(nil)
	w.until(fake, 30*time.Second, 8)
	got := stories(w.connector.Distinct(t))[4:]
	slices.Sort(got)
	var want []string
	for _, node := range []string{"kom-ended-1", "kom-ended-2"} {
		for _, code := range []string{"A", "B"} {
			want = append(want, fmt.Sprintf("recovery Given %s v1/Node %s %s", node, node, code))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
