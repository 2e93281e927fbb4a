// Package journey kills services of a running fleet with SIGKILL at named
// points between observe, decide, act and status update, and checks what must hold for
// every fault whatever dies when.
package journey

import "strings"

// Points are the named places where a service can be killed, in the order of
// an event's walk.
func Points() []string {
	return []string{
		"syslog-health-monitor/read", "syslog-health-monitor/outboxed", "syslog-health-monitor/published", "syslog-health-monitor/removed",
		"platform-connectors/received", "platform-connectors/spooled", "platform-connectors/acknowledged",
		"platform-connectors/appended", "platform-connectors/released", "platform-connectors/folded",
		"fault-quarantine/observed", "fault-quarantine/decided", "fault-quarantine/stamped", "fault-quarantine/done",
		"node-drainer/observed", "node-drainer/decided", "node-drainer/done", "node-drainer/stamped",
		"fault-remediation/observed", "fault-remediation/decided", "fault-remediation/name-stamped", "fault-remediation/created",
		"fault-remediation/uid-stamped", "fault-remediation/done", "fault-remediation/stamped",
		"janitor/observed", "janitor/decided", "janitor/intent-written", "janitor/claimed", "janitor/armed", "janitor/signal-sent",
		"janitor/stamped", "janitor/completed", "janitor/unclaimed", "janitor/done",
	}
}

// service is the service of a point: its name in a fleet, for the given node.
func service(point, node string) string {
	service, _, _ := strings.Cut(point, "/")
	if service == "syslog-health-monitor" || service == "platform-connectors" {
		return service + "@" + node
	}
	return service
}
