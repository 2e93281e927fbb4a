package provider

import "testing"

// OwnToken stands in for the pod's own token.
func OwnToken(t *testing.T, path string) {
	t.Helper()
	before := ownToken
	ownToken = path
	t.Cleanup(func() { ownToken = before })
}
