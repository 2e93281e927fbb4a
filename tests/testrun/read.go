// Package testrun evaluates a run of the tests: which packages failed, which of those are flaky,
// which tests were skipped and why.
package testrun

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gotest.tools/gotestsum/testjson"
)

// longPrefix begins the reason of a test that testkit.Long leaves to make test-all.
const longPrefix = "long, make test-all runs it"

// Failure is a package whose tests failed.
type Failure struct {
	Package string
	// Tests are the tests that failed; none if the package failed outside of them.
	Tests []string
	// First is the message of the first of them.
	First string
}

// Skip is a reason for which tests were skipped, and how many were.
type Skip struct {
	Reason string
	Tests  int
}

// Result is the result of one run of go test.
type Result struct {
	Passed, Failed int
	Failures       []Failure
	Skips          []Skip
}

// Read reads the output of go test -json.
func Read(from io.Reader) (Result, error) {
	run, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: from, IgnoreNonJSONOutputLines: true})
	if err != nil {
		return Result{}, fmt.Errorf("reading what go test said: %w", err)
	}
	var result Result
	reasons := map[string]int{}
	for _, name := range run.Packages() {
		pkg := run.Package(name)
		result.Passed += len(pkg.Passed)
		result.Failed += len(pkg.Failed)
		if pkg.Result() == testjson.ActionFail {
			result.Failures = append(result.Failures, failure(name, pkg))
			if len(pkg.Failed) == 0 {
				result.Failed++
			}
		}
		for _, test := range pkg.Skipped {
			why := reason(pkg.OutputLines(test))
			if strings.HasPrefix(why, longPrefix) {
				why = longPrefix
			}
			reasons[why]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		result.Skips = append(result.Skips, Skip{why, reasons[why]})
	}
	slices.SortStableFunc(result.Skips, func(a, b Skip) int { return cmp.Compare(b.Tests, a.Tests) })
	return result, nil
}

func failure(name string, pkg *testjson.Package) Failure {
	f := Failure{Package: name}
	failed := testjson.FilterFailedUnique(slices.Clone(pkg.Failed))
	for _, test := range failed {
		f.Tests = append(f.Tests, test.Test.Name())
	}
	if len(failed) > 0 {
		f.First = strings.TrimSpace(strings.Join(pkg.OutputLines(failed[0]), ""))
	} else {
		var output strings.Builder
		_ = pkg.WriteOutputTo(&output, 0) // a Builder takes everything
		f.First = strings.TrimSpace(output.String())
	}
	return f
}

// testLine is a line that a test writes: its file, its line and a text.
var testLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// reason is the last message of a skipped test.
func reason(lines []string) string {
	why := "no reason given"
	for _, line := range lines {
		if m := testLine.FindStringSubmatch(line); m != nil {
			why = strings.TrimSpace(m[1])
		}
	}
	return why
}
