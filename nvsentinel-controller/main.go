// Command nvsentinel-controller runs controllers of the control plane: one of them, or
// several in one process.
package main

import (
	eventexporter "github.com/nvidia/nvsentinel/event-exporter"
	faultquarantine "github.com/nvidia/nvsentinel/fault-quarantine"
	faultremediation "github.com/nvidia/nvsentinel/fault-remediation"
	healtheventsanalyzer "github.com/nvidia/nvsentinel/health-events-analyzer"
	kubernetesobjectmonitor "github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor"
	"github.com/nvidia/nvsentinel/health-monitors/labeler"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/janitor"
	nodedrainer "github.com/nvidia/nvsentinel/node-drainer"
	nodehealthcheck "github.com/nvidia/nvsentinel/node-health-check"
	repairchain "github.com/nvidia/nvsentinel/repair-chain"
)

const name = "nvsentinel-controller"

func main() { daemon.Controllers(name, controllers()...) }

// controllers is the table of all that it can run.
func controllers() []daemon.Controller {
	return []daemon.Controller{
		faultquarantine.Controller(),
		nodedrainer.Controller(),
		faultremediation.Controller(),
		repairchain.Controller(),
		janitor.Controller(),
		nodehealthcheck.Controller(),
		healtheventsanalyzer.Controller(),
		eventexporter.Controller(),
		kubernetesobjectmonitor.Controller(),
		labeler.Controller(),
	}
}
