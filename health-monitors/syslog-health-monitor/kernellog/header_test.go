package kernellog

import "testing"

// TestColon: the open driver's releases 515 to 530, and what only begins alike.
func TestColon(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM nvAssertOkFailedNoLog: Assertion failed: x": "NVRM: nvAssertOkFailedNoLog: Assertion failed: x",
		"NVRM GPU0 kfspSendBootCommands_GH100: x":         "NVRM: GPU0 kfspSendBootCommands_GH100: x",
		"NVRM: kgspHealthCheck: x":                        "NVRM: kgspHealthCheck: x",
		"NVRM x[29312]: segfault at 0":                    "NVRM x[29312]: segfault at 0",
		"NVRM PMU halted: page allocation failure":        "NVRM PMU halted: page allocation failure",
		"NVRM": "NVRM",
	} {
		if got := Colon(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
