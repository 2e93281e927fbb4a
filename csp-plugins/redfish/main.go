// Command redfish is the provider plugin of machines whose BMCs speak Redfish (DMTF
// DSP0266).
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-redfish"

// purpose is the first sentence of the help.
const purpose = "csp-plugin-redfish is the provider plugin for bare-metal nodes with BMCs that support Redfish."

func main() { daemon.Main(name, purpose, Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	return bmc.Serve(d, name, cfg.Config, cfg.Entries(), New(cfg, d.Clock))
}
