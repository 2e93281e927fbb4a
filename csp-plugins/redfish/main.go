// Command redfish is the provider plugin of machines whose BMCs speak Redfish.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/redfish"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

const name = "csp-plugin-redfish"

func main() { daemon.Main(name, redfish.Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg redfish.Config) error {
	return bmc.Serve(d, name, cfg.Config, cfg.Entries(), redfish.New(cfg, d.Clock))
}
