package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/tests/demo"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// TestNothingIsLeftOutSilently: without a C compiler the demo leaves the fault of DCGM out, and
// reports it; every other reason for which it cannot be shown ends the demo.
func TestNothingIsLeftOutSilently(t *testing.T) {
	for name, c := range map[string]struct {
		programs map[string]string
		fail     bool
		message  string
	}{
		"no compiler":   {message: "Skipping the fault that only DCGM detects: no working C compiler"},
		"go that fails": {programs: map[string]string{"gcc": "exit 0", "go": "echo 'no network' >&2; exit 1"}, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			for program, script := range c.programs {
				if err := os.WriteFile(filepath.Join(path, program), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", path)
			var out bytes.Buffer
			o := demo.Options{Out: &out, Fleet: fleet.Options{Root: t.TempDir(), Bin: t.TempDir()}}
			dir, err := dcgm(t.Context(), o)
			if (err != nil) != c.fail || dir != "" || !strings.HasPrefix(out.String(), c.message) || c.fail && out.Len() > 0 {
				t.Errorf("dcgm = %q, %v; said %q; want an error: %t", dir, err, out.String(), c.fail)
			}
		})
	}
}
