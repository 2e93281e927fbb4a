package command_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/cli/internal/command"
)

// TestUninstallUsage: what it does on a cluster is tested in internal/sweep.
func TestUninstallUsage(t *testing.T) {
	run(t, command.Program{}, "uninstall", "everything").expect(t, command.ExitUsage, "", `unknown command "everything"`)
	run(t, command.Program{}, "uninstall", "--yes", "--dry-run").expect(t, command.ExitUsage, "", "dry-run yes")
	run(t, command.Program{}, "uninstall").expect(t, command.ExitFailed, "", "no configuration has been provided")
}
