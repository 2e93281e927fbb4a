package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/tests/demo"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// TestNothingIsLeftOutSilently: a missing C compiler leaves the fault of DCGM out, and
// says so; every other reason for which it cannot be shown ends the demo.
func TestNothingIsLeftOutSilently(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		fail bool
		says string
	}{
		"no compiler":               {path: t.TempDir(), says: "is left out: no working C compiler"},
		"sources that do not build": {fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path != "" {
				t.Setenv("PATH", c.path)
			}
			var out bytes.Buffer
			o := demo.Options{Out: &out, Fleet: fleet.Options{Root: t.TempDir(), Bin: t.TempDir()}}
			dir, err := dcgm(t.Context(), o)
			if (err != nil) != c.fail || dir != "" || !strings.Contains(out.String(), c.says) {
				t.Errorf("dcgm = %q, %v; said %q; want an error: %t", dir, err, out.String(), c.fail)
			}
		})
	}
}
