package testrun

import (
	"fmt"
	"slices"
	"strings"
)

// MaxFlaky is how many flaky packages a run may have.
const MaxFlaky = 3

// Verdict is what a run comes to.
type Verdict struct {
	// Flaky are the packages that failed beside others and passed alone, with their
	// first failure.
	Flaky []Failure
	// Problems are why the run has failed; none if it has passed.
	Problems []string
}

// Passed reports whether the run has passed.
func (v Verdict) Passed() bool { return len(v.Problems) == 0 }

// ShouldRetry reports whether running the failed packages again can let the run pass.
func ShouldRetry(failures []Failure) bool { return len(failures) > 0 && len(failures) <= MaxFlaky }

// Evaluate returns the verdict on a run from the packages that failed in it, those that failed
// again when they ran alone, and those that were flaky in an earlier run.
func Evaluate(first, again []Failure, earlier []string) Verdict {
	var v Verdict
	if len(first) > MaxFlaky {
		v.Problems = append(v.Problems, fmt.Sprintf("%d packages failed; more than %d are not run again", len(first), MaxFlaky))
		return v
	}
	for _, f := range first {
		if slices.ContainsFunc(again, func(a Failure) bool { return a.Package == f.Package }) {
			v.Problems = append(v.Problems, fmt.Sprintf("%s failed, and failed again alone: %s", f.Package, f.names()))
			continue
		}
		v.Flaky = append(v.Flaky, f)
		if slices.Contains(earlier, f.Package) {
			v.Problems = append(v.Problems, f.Package+" is flaky for the second time: mend it, then take it out of the file of flaky tests")
		}
	}
	return v
}

func (f Failure) names() string {
	if len(f.Tests) == 0 {
		return "the package itself"
	}
	return strings.Join(f.Tests, ", ")
}
