package triage

import "time"

// Storm is storm recovery's state.
type Storm struct {
	// Active since Since.
	Active bool
	Since  time.Time
}

// EndIfRecovered ends a storm once no more than threshold nodes are unhealthy. It comes
// before a pass begins anything, so that what had to wait begins in the same pass.
// Without a threshold there is no storm.
func (s Storm) EndIfRecovered(c Census, threshold *int32) Storm {
	if threshold == nil || c.Unhealthy() <= int(*threshold) {
		return Storm{}
	}
	return s
}

// Rise begins a storm when as many nodes are unhealthy as may be. It comes after a
// pass has begun what it may: the pass that uses the budget up begins all of it.
//
// More than threshold nodes must be unhealthy: a check that requires all of its
// nodes, or whose threshold is above its budget, would otherwise be in a storm
// without a fault, or begin and end one with every pass.
func (s Storm) Rise(c Census, threshold *int32, now time.Time) Storm {
	if s.Active || threshold == nil || c.Healthy > c.Required || c.Unhealthy() <= int(*threshold) {
		return s
	}
	return Storm{Active: true, Since: now}
}

// Ineffective reports whether the threshold can never hold anything back: the budget
// is used up before more nodes are unhealthy than it allows.
func Ineffective(c Census, threshold *int32) bool {
	return threshold != nil && c.Observed > 0 && int(*threshold) >= c.Observed-c.Required
}
