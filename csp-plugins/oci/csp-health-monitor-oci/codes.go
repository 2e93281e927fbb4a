package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/oracle/oci-go-sdk/v65/core"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

const model = "https://docs.oracle.com/en-us/iaas/api/#/en/iaas/20160918/InstanceMaintenanceEvent/"

// Codes are the values of instanceAction: what Oracle does to the instance.
func Codes() []announcement.Code { return slices.Clone(codes) }

var codes = []announcement.Code{
	{Name: "REBOOT_MIGRATION", Action: protos.RecommendedAction_RESTART_VM, Why: "a reboot by the owner also moves it to another host", Source: model},
	{Name: "TERMINATE", Action: protos.RecommendedAction_REPLACE_VM, Why: "the instance does not return", Source: model},
	{Name: "STOP", Action: protos.RecommendedAction_REPLACE_VM, Why: "the instance does not return automatically", Source: model},
	{Name: "NONE", Action: protos.RecommendedAction_NONE, Why: "no effect on the instance", Source: model},
}

// stateOf reads lifecycleState. Where a maintenance failed, the state of the machine is
// not known: it stays under maintenance, and a person is asked for. A word that is none
// of them is read as the earliest.
func stateOf(s core.InstanceMaintenanceEventLifecycleStateEnum) announcement.State {
	switch s {
	case core.InstanceMaintenanceEventLifecycleStateStarted, core.InstanceMaintenanceEventLifecycleStateProcessing,
		core.InstanceMaintenanceEventLifecycleStateFailed:
		return announcement.Ongoing
	case core.InstanceMaintenanceEventLifecycleStateSucceeded:
		return announcement.Completed
	case core.InstanceMaintenanceEventLifecycleStateCanceled:
		return announcement.Cancelled
	default:
		return announcement.Scheduled
	}
}

// announce is a maintenance event as an announcement.
func announce(e core.InstanceMaintenanceEventSummary) announcement.Announcement {
	m := announcement.Find(codes, string(e.InstanceAction))
	emergency := e.MaintenanceCategory == core.InstanceMaintenanceEventMaintenanceCategoryEmergency
	a := announcement.Announcement{
		ID: announcement.Value(e.Id), Machine: announcement.Value(e.InstanceId), Code: m.Name, Action: m.Action, State: stateOf(e.LifecycleState),
		Unplanned: emergency, Emergency: emergency, Text: announcement.Value(e.Description),
		Begin: announcement.Value(e.TimeWindowStart).Time, Began: announcement.Value(e.TimeStarted).Time, Ended: announcement.Value(e.TimeFinished).Time,
		Metadata: map[string]string{
			"lifecycleState": string(e.LifecycleState), "maintenanceCategory": string(e.MaintenanceCategory),
			"maintenanceReason": string(e.MaintenanceReason), "createdBy": string(e.CreatedBy), "displayName": announcement.Value(e.DisplayName),
			"compartmentId": announcement.Value(e.CompartmentId), "canReschedule": fmt.Sprint(announcement.Value(e.CanReschedule)),
			"alternativeResolutionActions": fmt.Sprint(e.AlternativeResolutionActions), "correlationToken": announcement.Value(e.CorrelationToken),
		},
	}
	if e.LifecycleState == core.InstanceMaintenanceEventLifecycleStateFailed {
		a.Action = protos.RecommendedAction_CONTACT_SUPPORT
	}
	if e.TimeHardDueDate != nil {
		a.Metadata["timeHardDueDate"] = e.TimeHardDueDate.UTC().Format(time.RFC3339)
	}
	begins, known := duration(announcement.Value(e.StartWindowDuration))
	lasts, estimated := duration(announcement.Value(e.EstimatedDuration))
	if known && estimated && !a.Begin.IsZero() {
		a.End = a.Begin.Add(begins + lasts)
	}
	return a
}

// parts of a duration as ISO 8601 writes it: days, hours, minutes, seconds. Months and
// years have no length.
var parts = regexp.MustCompile(`^P(?:(\d{1,4})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,6})M)?(?:(\d{1,8})S)?)?$`)

// duration reads a duration such as P1DT12H; false for what it is not.
func duration(text string) (time.Duration, bool) {
	match := parts.FindStringSubmatch(text)
	if match == nil || text == "P" || text[len(text)-1] == 'T' {
		return 0, false
	}
	var sum time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, err := strconv.Atoi(match[i+1])
		if err == nil {
			sum += time.Duration(n) * unit
		}
	}
	return sum, true
}
