package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish"
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

// resetTypes are all that a configuration may name. A shutdown is none: nobody would
// switch the machine on again.
var resetTypes = []string{GracefulRestart, ForceRestart, PowerCycle, FullPowerCycle}

// target is what is wanted of a machine.
type target struct {
	// order names the ways, the best first.
	order []string
	// force leaves out the ways that wait for the operating system.
	force bool
	// powerOn switches a machine on that is off.
	powerOn bool
}

// choose names the ways to reset a machine that offers some, the best first; one that
// does not report what it offers may take any. Nothing was done when there is none.
func choose(w target, state schemas.PowerState, offered []schemas.ResetType) ([]schemas.ResetType, error) {
	wanted := make([]schemas.ResetType, 0, len(w.order))
	switch power := powerOf(state); {
	case power == bmc.Changing:
		return nil, status.Errorf(codes.Aborted, "the BMC reports the power state %q of the machine, retrying until it is on", state)
	case power == bmc.Off && !w.powerOn:
		return nil, status.Error(codes.Aborted, "the machine is off and may be under maintenance: switch it on, or set powerOn in its [[bmc]]")
	case power == bmc.Off:
		wanted = append(wanted, schemas.OnResetType, schemas.ForceOnResetType)
	default:
		for _, way := range w.order {
			if !w.force || way != GracefulRestart {
				wanted = append(wanted, schemas.ResetType(way))
			}
		}
	}
	found := wanted
	if len(offered) > 0 {
		found = slices.DeleteFunc(slices.Clone(wanted), func(way schemas.ResetType) bool { return !slices.Contains(offered, way) })
	}
	if len(found) > 0 {
		return found, nil
	}
	advice := ""
	if slices.Contains(offered, schemas.ForceOffResetType) && !slices.ContainsFunc(resetTypes, func(way string) bool { return slices.Contains(offered, schemas.ResetType(way)) }) {
		advice = ". The machine supports only power off and power on, which can fail in between: reset it through csp-plugin-ipmi, whose power cycle is a single request"
	}
	return nil, status.Errorf(codes.FailedPrecondition, "the machine supports the reset types %s, and the plugin is configured for %s (resetTypes in its [[bmc]])%s", texts(offered), texts(wanted), advice)
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

// maxTaskPolls is how often a task is looked at: an error of the BMC shows at once, and
// the boot of the machine is not waited for.
const maxTaskPolls = 6

// follow looks at the task of a reset that a BMC took. It fails if the task did.
func (d *Driver) follow(client *gofish.APIClient, info *schemas.TaskMonitorInfo) error {
	if info == nil {
		return nil
	}
	over, err := verdict(info.Task)
	monitor, bad := url.Parse(info.TaskMonitor)
	if over || bad != nil || monitor.Path == "" {
		return err
	}
	for range maxTaskPolls {
		<-d.clock.After(d.pause)
		if over, err := pollTask(client, monitor.Path); over {
			return err
		}
	}
	return nil
}

// pollTask looks at a task once. A monitor that cannot be read does not matter: the reset
// was accepted.
func pollTask(client *gofish.APIClient, path string) (over bool, err error) {
	answer, err := client.Get(path)
	if refused, ok := errors.AsType[*schemas.Error](err); ok && refused.HTTPReturnedStatusCode != http.StatusNotFound {
		// A monitor answers as the request itself would have. But the BMC took that one.
		return true, status.Error(codes.Unavailable, bmc.Shorten("the BMC accepted the reset, and its task was rejected: "+errorText(refused)))
	}
	if err != nil {
		return true, nil
	}
	defer schemas.DeferredCleanupHTTPResponse(answer)
	var task schemas.Task
	if json.NewDecoder(answer.Body).Decode(&task) != nil || task.TaskState == "" {
		return answer.StatusCode != http.StatusAccepted, nil
	}
	return verdict(&task)
}

// verdict returns whether a task is over, and whether it failed.
func verdict(task *schemas.Task) (over bool, err error) {
	if task == nil {
		return false, nil
	}
	switch task.TaskState {
	case schemas.CompletedTaskState:
		return true, nil
	case schemas.ExceptionTaskState, schemas.KilledTaskState, schemas.CancelledTaskState:
		text := []string{"the BMC accepted the reset, and its task ended as " + string(task.TaskState) + ":"}
		for _, m := range task.Messages {
			text = append(text, m.MessageID, m.Message)
		}
		return true, status.Error(codes.Unavailable, bmc.Shorten(strings.Join(text, " ")))
	default:
		return false, nil
	}
}
