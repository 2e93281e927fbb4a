package main

import (
	"slices"
	"strings"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	healthtypes "github.com/aws/aws-sdk-go-v2/service/health/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

const (
	statusEvents = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceStatusEvent.html"
	healthEvents = "https://docs.aws.amazon.com/health/latest/APIReference/API_Event.html"
	retirement   = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-retirement.html"
	schedule     = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html"
)

// Codes are the codes of EC2's scheduled events, then the event types of AWS Health.
func Codes() []announcement.Code {
	out := slices.Clone(ofEC2)
	for _, c := range ofHealth {
		out = append(out, c.Code)
	}
	return out
}

const (
	none    = protos.RecommendedAction_NONE
	restart = protos.RecommendedAction_RESTART_VM
	replace = protos.RecommendedAction_REPLACE_VM
)

var ofEC2 = []announcement.Code{
	{Name: "instance-reboot", Action: restart, Why: "the owner can reboot it instead", Source: statusEvents},
	{Name: "system-reboot", Action: none, Why: "the host is rebooted, which the owner cannot do", Source: statusEvents},
	{Name: "system-maintenance", Action: none, Why: "network or power of the host, no action afterwards", Source: statusEvents},
	{Name: "instance-retirement", Action: replace, Why: "the host fails permanently", Source: statusEvents},
	{Name: "instance-stop", Action: replace, Why: "the instance returns only on another host", Source: statusEvents},
}

// eventType is an event type of AWS Health, with the codes under which EC2 shows the
// same maintenance among an instance's scheduled events; none where EC2 does not.
type eventType struct {
	announcement.Code
	mirrors []string
}

var (
	reboots = []string{"instance-reboot", "system-reboot"}
	hosts   = []string{"system-maintenance", "system-reboot"}
	leaves  = []string{"instance-retirement", "instance-stop"}
)

var ofHealth = []eventType{
	{announcement.Code{Name: "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", Action: restart, Why: "as instance-reboot", Source: schedule}, reboots},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_REBOOT_FLEXIBLE_MAINTENANCE_SCHEDULED", Action: restart, Why: "as instance-reboot", Source: schedule}, reboots},
	{announcement.Code{Name: "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED", Action: none, Why: "as system-reboot", Source: schedule}, reboots},
	{announcement.Code{Name: "AWS_EC2_SYSTEM_MAINTENANCE_EVENT", Action: none, Why: "as system-maintenance", Source: healthEvents}, hosts},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED", Action: none, Why: "as system-maintenance", Source: schedule}, hosts},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_POWER_MAINTENANCE_SCHEDULED", Action: none, Why: "as system-maintenance", Source: schedule}, hosts},
	{announcement.Code{Name: "AWS_EC2_PERSISTENT_INSTANCE_POWER_MAINTENANCE_SCHEDULED", Action: none, Why: "as system-maintenance", Source: schedule}, hosts},
	{announcement.Code{Name: "AWS_EC2_MAINTENANCE_SCHEDULED", Action: none, Why: "the type of maintenance is not specified", Source: schedule}, slices.Concat(hosts, reboots[:1], leaves)},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", Action: replace, Why: "as instance-retirement", Source: retirement}, leaves},
	{announcement.Code{Name: "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", Action: replace, Why: "as instance-retirement", Source: retirement}, leaves},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_RETIREMENT_EXPEDITED", Action: replace, Emergency: true, Why: "the host fails earlier than announced", Source: retirement}, leaves},
	{announcement.Code{Name: "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_EXPEDITED", Action: replace, Emergency: true, Why: "the host fails earlier than announced", Source: retirement}, leaves},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_STOP_SCHEDULED", Action: replace, Why: "as instance-stop", Source: schedule}, leaves},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_TERMINATION_SCHEDULED", Action: replace, Why: "as instance-retirement", Source: schedule}, leaves},
	{announcement.Code{Name: "AWS_EC2_DEDICATED_HOST_MAINTENANCE_SCHEDULED", Action: none, Why: "no action afterwards", Source: schedule}, nil},
	{announcement.Code{Name: "AWS_EC2_DEDICATED_HOST_NETWORK_MAINTENANCE_SCHEDULED", Action: none, Why: "no action afterwards", Source: schedule}, nil},
	{announcement.Code{Name: "AWS_EC2_DEDICATED_HOST_POWER_MAINTENANCE_SCHEDULED", Action: none, Why: "no action afterwards", Source: schedule}, nil},
	{announcement.Code{Name: "AWS_EC2_DEDICATED_HOST_RETIREMENT_SCHEDULED", Action: replace, Why: "the host fails permanently", Source: schedule}, nil},
	{announcement.Code{Name: "AWS_EC2_INSTANCE_STORE_DRIVE_PERFORMANCE_DEGRADED", Action: replace, Unplanned: true, Why: "a drive of the host fails", Source: healthEvents}, nil},
	{announcement.Code{Name: ultraBegin, Action: none, Unplanned: true, Why: "ends with " + ultraEnd, Source: healthEvents}, nil},
	{announcement.Code{Name: ultraReduced, Action: none, Unplanned: true, Why: "ends with " + ultraEnd, Source: healthEvents}, nil},
	{announcement.Code{Name: ultraEnd, Action: none, Unplanned: true, Why: "ends the two above", Source: healthEvents}, nil},
}

const (
	ultraBegin   = "AWS_EC2_ULTRASERVER_MAINTENANCE_INITIATED"
	ultraReduced = "AWS_EC2_ULTRASERVER_CAPACITY_REDUCED"
	ultraEnd     = "AWS_EC2_ULTRASERVER_MAINTENANCE_COMPLETED"
)

// plannedLifecycle is the ending of the event types by which AWS reports months ahead that
// some software or instance type ends: no maintenance of a machine, and of the
// whole fleet at once (source: "Planned lifecycle events for AWS Health").
const plannedLifecycle = "_PLANNED_LIFECYCLE_EVENT"

// alwaysIncludedEvents are the event types that are asked for whatever their category: those that
// Health may list as issues. Ten fit into a filter.
var alwaysIncludedEvents = []string{
	"AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
	"AWS_EC2_INSTANCE_RETIREMENT_EXPEDITED", "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_EXPEDITED",
	"AWS_EC2_INSTANCE_STORE_DRIVE_PERFORMANCE_DEGRADED", ultraBegin, ultraReduced, ultraEnd,
}

// meaning is that of an event type of AWS Health.
func meaning(name string) eventType {
	if i := slices.IndexFunc(ofHealth, func(c eventType) bool { return c.Name == name }); i >= 0 {
		return ofHealth[i]
	}
	return eventType{Code: announcement.Unknown(name)}
}

// stateOfEC2 is how far a scheduled event has come. EC2 marks what has ended by the first
// word of the description, and marks nothing as begun: from NotBefore on it may have
// begun.
func stateOfEC2(e ec2types.InstanceStatusEvent, now time.Time) announcement.State {
	word, _, _ := strings.Cut(announcement.Value(e.Description), " ")
	switch {
	case strings.EqualFold(word, "[Completed]"):
		return announcement.Completed
	case strings.EqualFold(word, "[Canceled]"), strings.EqualFold(word, "[Cancelled]"):
		return announcement.Cancelled
	case e.NotBefore != nil && !e.NotBefore.After(now):
		return announcement.Ongoing
	}
	return announcement.Scheduled
}

// stateOfHealth is how far an event of AWS Health has come for one entity of it. What
// is closed before it could begin was cancelled; what is open before its window has
// not begun. An entity is resolved before others of the same event are.
func stateOfHealth(e healthtypes.Event, entity healthtypes.EntityStatusCode, now time.Time) announcement.State {
	begins := e.StartTime != nil && e.StartTime.After(now)
	switch {
	case announcement.Value(e.EventTypeCode) == ultraEnd:
		return announcement.Completed
	case e.StatusCode == healthtypes.EventStatusCodeClosed && begins:
		return announcement.Cancelled
	case e.StatusCode == healthtypes.EventStatusCodeClosed, entity == healthtypes.EntityStatusCodeResolved:
		return announcement.Completed
	case e.StatusCode == healthtypes.EventStatusCodeOpen && !begins:
		return announcement.Ongoing
	}
	return announcement.Scheduled
}
