// Command run-tests runs the tests of the workspace with the race detector. A
// package that fails runs once more, alone, after all others; what passes then is
// named as flaky. At the end it reports what was slow, and what was skipped and why.
//
// Exit status: 0 passed, 1 failed, 2 bad arguments.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"gotest.tools/gotestsum/cmd"
	"gotest.tools/gotestsum/cmd/tool/slowest"

	"github.com/nvidia/nvsentinel/tests/programs"
	"github.com/nvidia/nvsentinel/tests/testrun"
)

// environment is what the tests run with, unless the caller sets it: memory for processor time,
// which is what a run is short of (a fifth less of it in the linker and in tests that allocate
// much); and a tenth of the second that each process with the race detector sleeps at its end.
var environment = map[string]string{"GOGC": "400", "GORACE": "atexit_sleep_ms=100"}

func main() { os.Exit(run()) }

func run() int {
	long := flag.Bool("long", false, "Also run the long tests.")
	flaky := flag.String("flaky", "bin/flaky-tests.txt", "File to which flaky packages are added. A package that it already names fails the run if it is flaky again.")
	evidence := flag.String("evidence", "bin/test/said", "Directory for the JSON output of go test.")
	flag.Parse()
	s := session{
		evidence: *evidence, flaky: *flaky, began: time.Now(),
		// A third of the time goes into waiting for other processes and for leases.
		flags: []string{"-short", "-p", strconv.Itoa(runtime.NumCPU() + 2)},
		// go test begins packages in the order in which they are named, and one of the longest that
		// began last would run beside an idle processor.
		packages: append(slices.Clone(testrun.Longest), "work"),
	}
	err := errors.Join(setEnvironment(), os.MkdirAll(*evidence, 0o755))
	if err == nil && *long {
		var tests map[string][]string
		tests, err = testrun.LongTests(".")
		// Each of these is a fleet of processes.
		s.flags = []string{"-run", testrun.Pattern(tests), "-p", strconv.Itoa(runtime.NumCPU() + 1)}
		s.packages = slices.Sorted(maps.Keys(tests))
	}
	if flag.NArg() > 0 {
		s.packages = flag.Args()
	}
	passed := false
	if err == nil {
		passed, err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run-tests:", err)
	}
	if !passed {
		return 1
	}
	return 0
}

func setEnvironment() (err error) {
	for name, value := range environment {
		if os.Getenv(name) == "" {
			err = errors.Join(err, os.Setenv(name, value))
		}
	}
	return err
}

// session is one run of the tests.
type session struct {
	evidence string
	flaky    string
	flags    []string
	packages []string
	began    time.Time
	calls    int
}

func (s *session) run() (bool, error) {
	earlier, err := testrun.Earlier(s.flaky)
	if err != nil {
		return false, err
	}
	first, err := s.test(s.flags, s.packages)
	if err != nil {
		return false, err
	}
	again, err := s.again(first.Failures)
	if err != nil {
		return false, err
	}
	verdict := testrun.Evaluate(first.Failures, again, earlier)
	if err := testrun.Record(s.flaky, verdict.Flaky); err != nil {
		return false, err
	}
	s.printSummary(first, verdict)
	return verdict.Passed(), nil
}

// again runs each failed package once more, alone, if that can let the run pass.
func (s *session) again(failures []testrun.Failure) ([]testrun.Failure, error) {
	var again []testrun.Failure
	if !testrun.ShouldRetry(failures) {
		return nil, nil
	}
	for _, f := range failures {
		fmt.Println("== retry, alone:", f.Package)
		result, err := s.test(s.flags, []string{f.Package})
		if err != nil {
			return nil, err
		}
		again = append(again, result.Failures...)
	}
	return again, nil
}

// test calls go test once.
func (s *session) test(flags, packages []string) (testrun.Result, error) {
	s.calls++
	args := slices.Concat([]string{
		"--format", "pkgname-and-test-fails", "--format-hide-empty-pkg", "--hide-summary", "skipped", "--jsonfile", s.outputFile(s.calls),
		// No result is kept: go test does not see that a program or a file outside of
		// a test's module has changed.
		"--", "-count=1", "-timeout", "40m",
	}, programs.RaceDetector(), flags, packages)
	failed := cmd.Run("gotestsum", args)
	if _, exit := errors.AsType[*exec.ExitError](failed); failed != nil && !exit {
		return testrun.Result{}, failed
	}
	output, err := os.Open(s.outputFile(s.calls))
	if err != nil {
		return testrun.Result{}, err
	}
	defer output.Close()
	result, err := testrun.Read(output)
	if err == nil && failed != nil && len(result.Failures) == 0 {
		err = fmt.Errorf("go test: %w", failed)
	}
	return result, err
}

// outputFile is the file with the output of a call of go test.
func (s *session) outputFile(call int) string {
	return filepath.Join(s.evidence, strconv.Itoa(call)+".json")
}

// printSummary ends the run's output: the slowest tests, the flaky ones, the numbers.
func (s *session) printSummary(first testrun.Result, v testrun.Verdict) {
	fmt.Println("== the ten slowest tests")
	if err := slowest.Run("slowest", []string{"--num", "10", "--jsonfile", s.outputFile(1)}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for _, f := range v.Flaky {
		fmt.Print(f)
	}
	if len(v.Flaky) > 0 {
		fmt.Printf("== flaky packages: %d, fix them before other changes, also listed in %s\n", len(v.Flaky), s.flaky)
	}
	for _, p := range v.Problems {
		fmt.Println("== FAILED:", p)
	}
	failed, skipped := first.Failed, 0
	if v.Passed() {
		failed = 0
	}
	var why []string
	for _, skip := range first.Skips {
		skipped += skip.Tests
		why = append(why, fmt.Sprintf("%d %s", skip.Tests, skip.Reason))
	}
	fmt.Printf("== test duration: %s\n", time.Since(s.began).Round(time.Second))
	if skipped > 0 {
		fmt.Printf("== skipped tests: %d (%s)\n", skipped, strings.Join(why, "; "))
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", first.Passed, failed, skipped)
}
