package policy

import (
	"os"
	"testing"
)

// The messages are as the node problem detector of AKS writes them, but for
// "Reboot Started", which is one that it might.
func TestScheduledEventsOfAKS(t *testing.T) {
	const path = "../../../examples/policies/aks-scheduled-events.toml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse(path, string(text), objects{})
	if err != nil {
		t.Fatal(err)
	}
	p := set.Policies[0]
	const fault, recovery, neither = "fault", "recovery", "neither"
	for _, c := range []struct{ status, message, want string }{
		{"False", "VM has no scheduled event", recovery},
		{"True", "Preempt Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1.", fault},
		{"True", "Terminate Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1.", fault},
		{"True", "Reboot Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1.", fault},
		{"True", "Redeploy Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1.", fault},
		{"True", "Freeze Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: 9.", recovery},
		{"True", "IMDS query failed, exit code: 28", neither},
		{"True", "Reboot Started", neither},
		{"Unknown", "Reboot Scheduled: Wed, 26 Feb 2025 10:13:13 GMT.", neither},
		{"", "", neither}, // no such condition
	} {
		node := gpuNode("True", now)
		if c.status != "" {
			status := node["status"].(map[string]any)
			status["conditions"] = append(status["conditions"].([]any), map[string]any{"type": "VMEventScheduled", "status": c.status, "message": c.message})
		}
		match, err := p.Match(node, now, nil)
		got := recovery
		switch {
		case err != nil:
			got = neither
		case match.Matched:
			got = fault
		}
		if got != c.want {
			t.Errorf("%s %q is %s (%v), want %s", c.status, c.message, got, err, c.want)
		}
	}
}
