package main

import (
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

const (
	view = "https://learn.microsoft.com/en-us/rest/api/compute/virtual-machines/instance-view"
	list = "https://learn.microsoft.com/en-us/rest/api/maintenance/updates/list"
)

const (
	none   = protos.RecommendedAction_NONE
	freeze = "Freeze"
	idle   = "None"
)

// redeploy is the code of what an instance view shows, which names no impact.
const redeploy = "maintenanceRedeployStatus"

// Codes are the field of the instance view, and the impact types of updates.
func Codes() []announcement.Code { return slices.Clone(codes) }

var codes = []announcement.Code{
	{Name: redeploy, Action: none, Why: "Azure moves it to an updated host itself", Source: view},
	{Name: "Redeploy", Action: none, Why: "Azure moves it to an updated host itself", Source: list},
	{Name: "Restart", Action: none, Why: "Azure restarts it itself", Source: list},
	{Name: freeze, Action: none, Why: "pauses for some seconds", Source: list},
	{Name: idle, Action: none, Why: "no effect on the machine", Source: list},
}

// stateOfUpdate reads the status of an update. What failed or waits to be tried again
// has not happened; from notBefore on Azure may be at it.
func stateOfUpdate(u update, now time.Time) announcement.State {
	switch {
	case u.Status == "Completed":
		return announcement.Completed
	case u.Status == "InProgress", !u.NotBefore.IsZero() && !u.NotBefore.After(now):
		return announcement.Ongoing
	}
	return announcement.Scheduled
}

// stateOfView reads the maintenance of an instance view. What its owner began and what
// was aborted is still to come.
func stateOfView(m armcompute.MaintenanceRedeployStatus, now time.Time) announcement.State {
	begin := announcement.Value(m.MaintenanceWindowStartTime)
	switch {
	case announcement.Value(m.LastOperationResultCode) == armcompute.MaintenanceOperationResultCodeTypesMaintenanceCompleted:
		return announcement.Completed
	case !begin.IsZero() && !begin.After(now):
		return announcement.Ongoing
	}
	return announcement.Scheduled
}

// further is the later of two states.
func further(a, b announcement.State) announcement.State {
	order := []announcement.State{announcement.Scheduled, announcement.Ongoing, announcement.Completed, announcement.Cancelled}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}
