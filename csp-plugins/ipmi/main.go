// Command ipmi is the provider plugin of machines whose BMCs speak IPMI 2.0.
package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/ipmi"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-ipmi"

func main() { daemon.Main(name, ipmi.Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg ipmi.Config) error {
	if _, err := exec.LookPath(cfg.Program); err != nil {
		return fmt.Errorf("finding ipmitool (--ipmitool; Debian's package has that name): %w", err)
	}
	return bmc.Serve(d, name, cfg.Config, cfg.Entries(), ipmi.New(cfg))
}
