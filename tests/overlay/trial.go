package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Trial is a run of tests, with files of the source replaced in a copy that only the
// compiler sees.
type Trial struct {
	// Root is the folder of the workspace.
	Root string
	// Texts are the changed files by their paths, as Texts returns them. None is the
	// source as it is.
	Texts map[string]string
	// Args of go test: packages and flags.
	Args []string
	// Env is added to the environment of tests of a changed source.
	Env []string
}

// TestResult is the result of a trial's tests.
type TestResult struct {
	// Ran are how many tests ran.
	Ran int
	// Failed are the tests that failed, parents of others left out, or the package if it
	// failed outside its tests.
	Failed []string
	// Unbuilt is why tests could not be compiled.
	Unbuilt string
}

// Notice runs the tests twice: on the source as it is, where they must pass, and on
// the changed one. It names those that fail then; that none does is an error.
func (t Trial) Notice(ctx context.Context) (failed []string, err error) {
	switch reported, err := (Trial{Root: t.Root, Args: t.Args}).Run(ctx); {
	case err != nil:
		return nil, err
	case len(reported.Failed) > 0 || reported.Unbuilt != "":
		return nil, fmt.Errorf("as the source is, %s fails already: %s", strings.Join(reported.Failed, " "), reported.Unbuilt)
	case reported.Ran == 0:
		return nil, fmt.Errorf("%s finds no test", strings.Join(t.Args, " "))
	}
	changed, err := t.Run(ctx)
	switch {
	case err != nil:
		return nil, err
	case changed.Unbuilt != "":
		return nil, fmt.Errorf("with the change the tests do not compile: %s", changed.Unbuilt)
	case len(changed.Failed) == 0:
		return nil, errors.New("no test notices")
	}
	return changed.Failed, nil
}

// Run runs the tests. Tests that fail or do not compile are no error.
func (t Trial) Run(ctx context.Context) (TestResult, error) {
	args, env := append([]string{"test", "-json", "-vet=off"}, t.Args...), os.Environ()
	if len(t.Texts) > 0 {
		dir, err := os.MkdirTemp("", "nvsentinel-overlay-")
		if err != nil {
			return TestResult{}, err
		}
		defer os.RemoveAll(dir)
		file, err := Write(dir, t.Texts)
		if err != nil {
			return TestResult{}, err
		}
		args = slices.Insert(args, 1, "-overlay="+file, "-count=1")
		env = append(append(env, t.Env...), Env+"="+file)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = t.Root, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	reported := parseResult(stdout)
	if err != nil && (ctx.Err() != nil || len(reported.Failed) == 0 && reported.Unbuilt == "") {
		return reported, fmt.Errorf("go %s: %w", strings.Join(args, " "), errors.Join(err, ctx.Err(), errors.New(stderr.String())))
	}
	return reported, nil
}

// parseResult reads what go test -json wrote.
func parseResult(stdout []byte) TestResult {
	var out TestResult
	for dec := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var e struct{ Action, Package, Test, Output, FailedBuild string }
		if dec.Decode(&e) != nil {
			break
		}
		switch {
		case e.Action == "build-output":
			out.Unbuilt += e.Output
		case e.Test != "" && e.Action == "run":
			out.Ran++
		case e.Test != "" && e.Action == "fail":
			out.Failed = append(out.Failed, e.Test)
		case e.Action == "fail" && e.FailedBuild == "" && len(out.Failed) == 0:
			out.Failed = append(out.Failed, e.Package)
		}
	}
	out.Failed = slices.DeleteFunc(out.Failed, func(t string) bool {
		return slices.ContainsFunc(out.Failed, func(x string) bool { return strings.HasPrefix(x, t+"/") })
	})
	return out
}
