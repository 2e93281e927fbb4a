// Package config holds what an operator can set about csp-health-monitor, whichever
// provider it reads.
package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Config is the part of the configuration that all providers share.
type Config struct {
	_ struct{} `block:"Maintenance" usage:"When an announced maintenance of a cloud acts ([csp-health-monitor](../csp-health-monitor.md))"`

	storeopen.Location
	lease.Cluster
	report.Connector
	report.Acting

	// ClusterName stands in the stored documents; required.
	ClusterName string `toml:"clusterName" flag:"cluster-name" usage:"name of the cluster, as it stands in the stored maintenances"`
	// RoundSeconds is between two rounds of decisions.
	RoundSeconds int `toml:"maintenanceEventPollIntervalSeconds" bounds:"10 to 3600 s" flag:"maintenance-event-poll-interval-seconds" usage:"seconds between two looks at the stored maintenances, at least 10"`
	// PollSeconds is between two readings of the provider.
	PollSeconds int `toml:"pollingIntervalSeconds" bounds:"30 to 3600 s" flag:"polling-interval-seconds" usage:"seconds between two readings of the provider, at least 30"`
	// LeadMinutes is before the start.
	LeadMinutes int `toml:"triggerQuarantineWorkflowTimeLimitMinutes" bounds:"0 to 10080 min" flag:"trigger-quarantine-workflow-time-limit-minutes" usage:"minutes before its start at which a maintenance takes its node out of service"`
	// DelayMinutes is behind the end.
	DelayMinutes int `toml:"postMaintenanceHealthyDelayMinutes" bounds:"0 to 10080 min" flag:"post-maintenance-healthy-delay-minutes" usage:"minutes after its end at which a node is looked at first"`
	// ReadyMinutes is behind the delay.
	ReadyMinutes int `toml:"nodeReadinessTimeoutMinutes" bounds:"1 to 10080 min" flag:"node-readiness-timeout-minutes" usage:"minutes after that in which a node has to be ready; one that is not is told of, and still healed when it is"`
	// NodeName is the node that this replica runs on.
	NodeName string `toml:"nodeName" flag:"node-name" usage:"name of the node this replica runs on: a provider that cannot be read is told of it; empty tells nobody"`
}

// Default has the numbers of the earlier NVSentinel, and acts on nothing.
func Default() Config {
	return Config{
		RoundSeconds: 60, PollSeconds: 60, LeadMinutes: 30, DelayMinutes: 15, ReadyMinutes: 60,
		Acting: report.Acting{Strategy: string(record.PersistOnly)}, Connector: report.DefaultConnector(), Cluster: lease.DefaultCluster(),
	}
}

// Bounds of times.
const (
	leastRound = 10
	leastPoll  = 30
	// mostMinutes is a week.
	mostMinutes = 7 * 24 * 60
	mostSeconds = 3600
)

// Policy is when a maintenance acts.
func (c Config) Policy() lifecycle.Policy {
	return lifecycle.Policy{
		Lead: time.Duration(c.LeadMinutes) * time.Minute, HealthyDelay: time.Duration(c.DelayMinutes) * time.Minute,
		Readiness: time.Duration(c.ReadyMinutes) * time.Minute, Strategy: record.Strategy(c.Strategy),
	}
}

// Poll is the time between two readings.
func (c Config) Poll() time.Duration { return time.Duration(c.PollSeconds) * time.Second }

// Rounds is the time between two rounds of decisions.
func (c Config) Rounds() time.Duration { return time.Duration(c.RoundSeconds) * time.Second }

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.ClusterName == "" {
		wrong("clusterName (--cluster-name) is empty; it is the name of this cluster in the stored maintenances")
	}
	for _, bound := range []struct {
		key                string
		value, least, most int
	}{
		{"maintenanceEventPollIntervalSeconds", c.RoundSeconds, leastRound, mostSeconds},
		{"pollingIntervalSeconds", c.PollSeconds, leastPoll, mostSeconds},
		{"triggerQuarantineWorkflowTimeLimitMinutes", c.LeadMinutes, 0, mostMinutes},
		{"postMaintenanceHealthyDelayMinutes", c.DelayMinutes, 0, mostMinutes},
		{"nodeReadinessTimeoutMinutes", c.ReadyMinutes, 1, mostMinutes},
	} {
		if bound.value < bound.least || bound.value > bound.most {
			wrong("%s is %d; it has to be from %d to %d", bound.key, bound.value, bound.least, bound.most)
		}
	}
	return errors.Join(append(problems, c.Location.Validate(), c.Cluster.Validate(), c.Connector.Validate(), c.Acting.Validate())...)
}
