package reading

import "testing"

// TestFailureMessage: a call that did not return is distinguished from one that failed.
func TestFailureMessage(t *testing.T) {
	for trouble, want := range map[Trouble]string{
		Hung:        "DCGM's HealthCheck did not return: no answer in 30s",
		Unreachable: "DCGM's HealthCheck failed: no answer in 30s",
		Unreadable:  "no answer in 30s",
	} {
		if got := (&Failure{Trouble: trouble, Operation: "HealthCheck", Text: "no answer in 30s"}).Error(); got != want {
			t.Errorf("%s: %q, want %q", trouble, got, want)
		}
	}
}
