package record

import "path"

// CheckOwner is an agent and the check names that belong to it.
type CheckOwner struct {
	Agent string
	// Checks are names, and patterns of path.Match: "SysLogs*".
	Checks []string
}

// DefaultCheckOwners are the agents of this suite whose check names connectors know without any
// configuration.
func DefaultCheckOwners() []CheckOwner {
	return []CheckOwner{
		{"syslog-health-monitor", []string{"SysLogs*"}},
		{"gpu-health-monitor", []string{"Gpu*"}},
		{"csp-health-monitor", []string{"CSPMaintenance", "CSPUnreachable"}},
		{"nic-health-monitor", []string{"InfiniBand*", "Ethernet*"}},
	}
}

// CheckOwnerOf is the agent to which a check name belongs, and the name or pattern by which it does;
// empty is nobody. An agent with the very name goes before one with a pattern: Gpu* is
// gpu-health-monitor's, and GpuCountMismatch of another agent may be.
func CheckOwnerOf(owners []CheckOwner, check string) (agent, by string) {
	for _, o := range owners {
		for _, pattern := range o.Checks {
			if pattern == check {
				return o.Agent, pattern
			}
			if ok, err := path.Match(pattern, check); agent == "" && err == nil && ok {
				agent, by = o.Agent, pattern
			}
		}
	}
	return agent, by
}
