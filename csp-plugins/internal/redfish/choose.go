package redfish

import (
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
)

// Ways to reset a machine, as in the schema of Redfish (Resource, ResetType).
const (
	GracefulRestart = string(schemas.GracefulRestartResetType)
	ForceRestart    = string(schemas.ForceRestartResetType)
	PowerCycle      = string(schemas.PowerCycleResetType)
	FullPowerCycle  = string(schemas.FullPowerCycleResetType)
)

// ways are all that a configuration may name. A shutdown is none: nobody would
// switch the machine on again.
var ways = []string{GracefulRestart, ForceRestart, PowerCycle, FullPowerCycle}

// target is what is wanted of a machine.
type target struct {
	// order names the ways, the best first.
	order []string
	// force leaves out the ways that wait for the operating system.
	force bool
	// powerOn switches a machine on that is off.
	powerOn bool
}

// choose is the best way to reset a machine that offers some; a machine that
// does not say what it offers is asked for the best. Nothing was done when there
// is none.
func choose(w target, power bmc.Power, offered []schemas.ResetType) (schemas.ResetType, error) {
	wanted := make([]schemas.ResetType, 0, len(w.order))
	switch {
	case power == bmc.Changing:
		return "", status.Error(codes.Aborted, "the power of the machine is just changing: waiting until it is on")
	case power == bmc.Off && !w.powerOn:
		return "", status.Error(codes.Aborted, "the machine is off, and somebody may work on it: switch it on, or set powerOn in its [[bmc]]")
	case power == bmc.Off:
		wanted = append(wanted, schemas.OnResetType, schemas.ForceOnResetType)
	default:
		for _, way := range w.order {
			if !w.force || way != GracefulRestart {
				wanted = append(wanted, schemas.ResetType(way))
			}
		}
	}
	for _, way := range wanted {
		if len(offered) == 0 || slices.Contains(offered, way) {
			return way, nil
		}
	}
	return "", status.Errorf(codes.FailedPrecondition, "the machine offers the reset types %s, the plugin may take %s (reset in its [[bmc]])", texts(offered), texts(wanted))
}

func texts(types []schemas.ResetType) string {
	names := []string{}
	for _, t := range types {
		names = append(names, string(t))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
