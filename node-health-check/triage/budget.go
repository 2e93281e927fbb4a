package triage

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// Census counts the nodes of a check.
type Census struct {
	// Observed nodes, and those of them that are healthy, have no remediation and
	// are not in quarantine.
	Observed, Healthy int
	// Required are how many must be healthy for a further remediation to begin.
	Required int
}

// Unhealthy is how many nodes are not healthy.
func (c Census) Unhealthy() int { return c.Observed - c.Healthy }

// Open reports whether the budget lets a further remediation begin.
func (c Census) Open() bool { return c.Healthy >= c.Required }

// Required is how many of observed nodes must be healthy for a further remediation
// to begin. Its error names the field.
func Required(spec *v1alpha1.NodeHealthCheckSpec, observed int) (int, error) {
	switch {
	case (spec.MinHealthy == nil) == (spec.MaxUnhealthy == nil):
		return 0, fmt.Errorf("spec.minHealthy, spec.maxUnhealthy: exactly one must be set")
	case spec.MinHealthy != nil:
		least, err := share(*spec.MinHealthy, observed)
		if err != nil {
			return 0, fmt.Errorf("spec.minHealthy: %w", err)
		}
		return least, nil
	default:
		most, err := share(*spec.MaxUnhealthy, observed)
		if err != nil {
			return 0, fmt.Errorf("spec.maxUnhealthy: %w", err)
		}
		return max(observed-most, 0), nil
	}
}

// share is a number, or a percentage of observed, rounded up.
func share(of intstr.IntOrString, observed int) (int, error) {
	if of.Type == intstr.Int {
		if of.IntVal < 0 {
			return 0, fmt.Errorf("%d is negative", of.IntVal)
		}
		return int(of.IntVal), nil
	}
	text, percent := strings.CutSuffix(of.StrVal, "%")
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || percent && n > 100 {
		return 0, fmt.Errorf("%q is neither a number nor a percentage", of.StrVal)
	}
	if percent {
		return (int(n)*observed + 99) / 100, nil
	}
	return int(n), nil
}
