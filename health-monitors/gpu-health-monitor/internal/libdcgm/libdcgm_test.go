//go:build cgo

package libdcgm

import "testing"

// TestNames: two monitors in containers have the same process id, and a host engine refuses
// the name of a field group twice.
func TestNames(t *testing.T) {
	names := map[string]bool{}
	for range 100 {
		library, err := New()
		if err != nil {
			t.Fatal(err)
		}
		name := library.(*connection).name
		if len(name) > 64 || names[name] {
			t.Fatalf("%q is too long, or the name of two", name)
		}
		names[name] = true
	}
}
