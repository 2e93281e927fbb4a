package main

import (
	"slices"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

const (
	reasons = "https://cloud.google.com/compute/docs/reference/rest/v1/instances/get"
	methods = "https://cloud.google.com/compute/docs/instances/monitor-plan-host-maintenance-event"
	policy  = "https://cloud.google.com/compute/docs/instances/host-maintenance-overview"
)

// The methods of the system event audit log that report maintenance.
const (
	upcoming  = "compute.instances.upcomingMaintenance"
	infra     = "compute.instances.upcomingInfraMaintenance"
	terminate = "compute.instances.terminateOnHostMaintenance"
	migrate   = "compute.instances.migrateOnHostMaintenance"
)

const (
	none    = protos.RecommendedAction_NONE
	itself  = "Compute Engine stops and starts the instance itself"
	repairs = "the maintenance is the repair"
)

// Codes are the methods of the audit log, which stand for maintenance without a
// reason, and the reasons of upcomingMaintenance.
func Codes() []announcement.Code { return slices.Clone(codes) }

var codes = []announcement.Code{
	{Name: upcoming, Action: none, Why: itself, Source: methods},
	{Name: infra, Action: none, Why: itself, Source: methods},
	{Name: terminate, Action: none, Unplanned: true, Emergency: true, Why: "it has been stopped, " + itself, Source: policy},
	{Name: migrate, Action: none, Why: "it continued to run on another host", Source: policy},
	{Name: "PLANNED_UPDATE", Action: none, Why: itself, Source: reasons},
	{Name: "PLANNED_NETWORK_UPDATE", Action: none, Why: itself, Source: reasons},
	{Name: "INFRASTRUCTURE_RELOCATION", Action: none, Why: itself, Source: reasons},
	{Name: "FAILURE_DISK", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_GPU", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_GPU_MULTIPLE_FAULTY_HOSTS_CUSTOMER_REPORTED", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_GPU_NVLINK_SWITCH_CUSTOMER_REPORTED", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_GPU_TEMPERATURE", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_GPU_XID", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_INFRA", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_INTERFACE", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_MEMORY", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_NETWORK", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_NVLINK", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_REDUNDANT_HARDWARE_FAULT", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "FAILURE_TPU", Action: none, Unplanned: true, Why: repairs, Source: reasons},
	{Name: "MAINTENANCE_REASON_UNKNOWN", Action: none, Why: itself, Source: reasons},
	{Name: "UNDEFINED_MAINTENANCE_REASONS", Action: none, Why: itself, Source: reasons},
}

// meaning is that of the reasons of a maintenance: of several the one that needs a
// person, then one that nobody planned; of none that of the method.
func meaning(method string, why []string) announcement.Code {
	if len(why) == 0 {
		return announcement.Find(codes, method)
	}
	found := make([]announcement.Code, len(why))
	for i, name := range slices.Sorted(slices.Values(why)) {
		found[i] = announcement.Find(codes, name)
	}
	worst := found[0]
	for _, c := range found[1:] {
		if rank(c) > rank(worst) {
			worst = c
		}
	}
	return worst
}

func rank(c announcement.Code) int {
	switch {
	case c.Action != none:
		return 2
	case c.Unplanned:
		return 1
	}
	return 0
}

// stateOf reads maintenanceStatus. A word that is neither of the two is read as the
// earlier one.
func stateOf(status string) announcement.State {
	if status == "ONGOING" {
		return announcement.Ongoing
	}
	return announcement.Scheduled
}

// unplanned reads the type: MULTIPLE may hold what is not scheduled.
func unplanned(kind string) bool { return kind == "UNSCHEDULED" || kind == "MULTIPLE" }
