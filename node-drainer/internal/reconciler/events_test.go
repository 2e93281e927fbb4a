package reconciler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// TestEveryReasonHasAMessage: what blocks a drain is reported in words of its own, as a
// Warning, with its names and its session.
func TestEveryReasonHasAMessage(t *testing.T) {
	d := &Reconciler{config: Config{Policy: decision.DefaultPolicy(eviction.Policy{})}}
	reported := map[string]decision.Reason{}
	for _, why := range decision.BlockedReasons() {
		got := d.warnings(decision.Step{Kind: decision.Wait, Session: "s1", Blocked: []decision.Blocked{{Why: why, By: []string{"web/pdb"}}}})
		if len(got) != 1 || got[0].reason != drainBlocked || got[0].kind() != corev1.EventTypeWarning || !strings.HasSuffix(got[0].message, "session s1") {
			t.Errorf("%s: %+v, want one Warning %s with the session", why, got, drainBlocked)
			continue
		}
		if other, again := reported[got[0].message]; again || strings.HasPrefix(got[0].message, string(why)) {
			t.Errorf("%s: %q has no words of its own (%s)", why, got[0].message, other)
		}
		reported[got[0].message] = why
	}
	alone := d.warnings(decision.Step{Kind: decision.LeaveAlone, Blocked: []decision.Blocked{{Why: decision.PodsReturn, By: []string{"a/b (Agent)"}}}})
	if len(alone) != 1 || alone[0].reason != podsLeftAlone || !strings.Contains(alone[0].message, "3 evictions") || !strings.Contains(alone[0].message, "a/b (Agent)") {
		t.Errorf("left alone: %+v", alone)
	}
}

func TestEventsNameAFew(t *testing.T) {
	for want, names := range map[string][]string{
		"":                         nil,
		"a":                        {"a"},
		"a, b, c, d, e":            {"a", "b", "c", "d", "e"},
		"a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := named(names); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}
