package testkit

import "testing"

// Long leaves a test to make test-all; make test, which runs with -short, skips
// it. The reason states what in make test covers the same path.
func Long(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("long, make test-all runs it: " + reason)
	}
}
