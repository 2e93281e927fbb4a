// Command ipmi is the provider plugin of machines whose BMCs speak IPMI 2.0 over the
// network (RMCP+), with ipmitool as a process for each command.
//
// The commands are sent by their numbers (ipmitool raw), as `chassis power` and `mc guid`
// send them: the answers are numbers then, and no texts that differ between versions of
// the program.
package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-ipmi"

// purpose is the first sentence of the help.
const purpose = "csp-plugin-ipmi is the provider plugin for bare-metal nodes with BMCs that support IPMI 2.0."

func main() { daemon.Main(name, purpose, Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	if _, err := exec.LookPath(cfg.Program); err != nil {
		return fmt.Errorf("finding ipmitool (set --ipmitool, or install the package ipmitool): %w", err)
	}
	return bmc.Serve(d, name, cfg.Config, cfg.Entries(), New(cfg))
}
