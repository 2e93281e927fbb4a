package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
)

// Driver is the driver of the BMCs of a configuration.
type Driver struct {
	bmcs  map[string]BMC // by machine
	clock clock.Clock
	// pause is between two looks at a task.
	pause time.Duration
}

var _ bmc.Driver = (*Driver)(nil)

// New makes the driver of a configuration that was validated.
func New(c Config, clk clock.Clock) *Driver {
	d := &Driver{bmcs: map[string]BMC{}, clock: clk, pause: 500 * time.Millisecond}
	for _, b := range c.All() {
		d.bmcs[b.Machine()] = b
	}
	return d
}

// Inspect reads the ComputerSystem, for which the BMC wants the credentials.
func (d *Driver) Inspect(ctx context.Context, machine string) (facts bmc.Facts, err error) {
	err = d.with(ctx, machine, func(client *gofish.APIClient, _ *line) error {
		system, err := find(client, d.bmcs[machine])
		if err != nil {
			return err
		}
		facts = bmc.Facts{UUID: system.UUID, Power: powerOf(system.PowerState), LastReset: instant(system.LastResetTime)}
		return nil
	})
	return facts, err
}

// Reset sends ComputerSystem.Reset, and follows the task of a BMC that makes one for
// a few seconds: whether the machine comes back is not known by then. The next way
// follows only when the BMC refused the one before as a thing that it can not do.
func (d *Driver) Reset(ctx context.Context, machine string, force bool) error {
	b := d.bmcs[machine]
	return d.with(ctx, machine, func(client *gofish.APIClient, l *line) error {
		system, err := find(client, b)
		if err != nil {
			return nothingSent(err)
		}
		offered, err := offers(system)
		if err != nil {
			return nothingSent(answered(err, true))
		}
		found, err := choose(target{order: b.Reset, force: force, powerOn: b.PowerOn}, system.PowerState, offered)
		if err != nil {
			return err
		}
		refusals := []string{}
		for _, way := range found {
			task, err := send(l, system, way)
			switch {
			case err == nil:
				return d.follow(client, task)
			case status.Code(err) != codes.FailedPrecondition:
				return err
			}
			refusals = append(refusals, status.Convert(err).Message())
		}
		return status.Error(codes.FailedPrecondition, strings.Join(refusals, "; "))
	})
}

// send sends one signal.
func send(l *line, system *schemas.ComputerSystem, way schemas.ResetType) (*schemas.TaskMonitorInfo, error) {
	l.sent.Store(false)
	task, err := system.Reset(way)
	return task, named(string(way), answered(err, l.sent.Load()))
}

// offers are the reset types that a machine offers; none if the BMC does not list them,
// if its link to them leads nowhere, or if it lists something else. A BMC that cannot
// list them now is an error.
func offers(system *schemas.ComputerSystem) ([]schemas.ResetType, error) {
	offered, err := system.GetSupportedResetTypes()
	if err == nil {
		return offered, nil
	}
	refused, arrived := errors.AsType[*schemas.Error](err)
	_, cut := errors.AsType[*url.Error](err)
	if cut || arrived && !slices.Contains(nowhere, refused.HTTPReturnedStatusCode) {
		return nil, err
	}
	return nil, nil
}

// nowhere are the HTTP statuses of a link that leads nowhere.
var nowhere = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented}

// find reads the machine's ComputerSystem.
func find(client *gofish.APIClient, b BMC) (*schemas.ComputerSystem, error) {
	if b.System != "" {
		return read(client, "/redfish/v1/Systems/"+b.System)
	}
	list, err := schemas.GetCollection(client, "/redfish/v1/Systems")
	switch {
	case err != nil:
		return nil, answered(err, true)
	case len(list.ItemLinks) == 0:
		return nil, status.Errorf(codes.Aborted, "the BMC at %s lists no ComputerSystem (yet), retry", b.Address)
	case len(list.ItemLinks) > 1:
		return nil, status.Errorf(codes.FailedPrecondition, "the BMC at %s has several ComputerSystems: set system in its [[bmc]] to one of %s", b.Address, ids(list.ItemLinks))
	}
	return read(client, list.ItemLinks[0])
}

func read(client *gofish.APIClient, path string) (*schemas.ComputerSystem, error) {
	system, err := schemas.GetComputerSystem(client, path)
	if err != nil {
		return nil, answered(err, true)
	}
	return system, nil
}

// ids are the last parts of a few paths.
func ids(paths []string) string {
	var names []string
	for _, path := range paths[:min(8, len(paths))] {
		names = append(names, path[strings.LastIndex(path, "/")+1:])
	}
	return strings.Join(names, ", ")
}

func powerOf(p schemas.PowerState) bmc.Power {
	switch p {
	case schemas.OnPowerState:
		return bmc.On
	case schemas.OffPowerState:
		return bmc.Off
	case "", "Unknown": // the latter of HPE's iLO
		return bmc.Unknown
	default: // also "Reset" of HPE's iLO
		return bmc.Changing
	}
}

// instant is a time in one way of writing, so that it can be compared.
func instant(text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
