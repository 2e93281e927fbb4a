package journey

import "testing"

func TestBlockedRunIsExplained(t *testing.T) {
	for answer, explained := range map[string]bool{
		`{"standing":{"phase":"draining","reason":"1 pod: 1 refused by budget training/guard"}}`:                                         true,
		`{"standing":{"phase":"held","reason":"the budget of 10 % is used up"}}`:                                                         true,
		`{"standing":{"phase":"remediating","reason":"attempt 1: RebootNode gpu-4-9eb542f3: AwaitingPodRemoval: training/guard-gpu-4"}}`: true,
		// The answer for seed 770005.
		`{"standing":{"phase":"remediating","reason":"attempt 1: RebootNode gpu-4-9eb542f3: Reserved"}}`: false,
		`{"standing":{"phase":"quarantined","reason":"drained, waiting for fault-remediation"}}`:         false,
		`{"standing":{"phase":"draining"}}`:   false,
		`{"standing":{"phase":"in-service"}}`: false,
		`! store not read`:                    false,
	} {
		if why := vague([]byte(answer)); (why == "") != explained {
			t.Errorf("%s: %q", answer, why)
		}
	}
}
