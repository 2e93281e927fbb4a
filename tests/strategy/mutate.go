package strategy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Root is the folder of the workspace, which the go command knows.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("asking for the workspace: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Mutate takes every filter away, one at a time, in a copy that only the
// compiler sees, runs the row's tests and prints which of them fail. A row whose
// tests pass, or that does not build, is an error, as is a filter in the source
// without a row.
func Mutate(ctx context.Context, root string, only *regexp.Regexp, out io.Writer) error {
	dir, err := os.MkdirTemp("", "nvsentinel-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	problems := []error{unlisted(root)}
	m := mutation{root: root, dir: dir}
	rows := 0
	for _, f := range Filters() {
		if !only.MatchString(f.Floor + " " + f.What) {
			continue
		}
		rows++
		failed, line, err := m.without(ctx, f)
		verdict := strings.Join(failed, " ")
		if err != nil {
			verdict = "SURVIVES: " + err.Error()
			problems = append(problems, fmt.Errorf("%s, %s: %w", f.Floor, f.What, err))
		}
		fmt.Fprintf(out, "| %d | %s | %s | %s:%d | %s |\n", rows, f.Floor, f.What, f.File, line, verdict)
	}
	return errors.Join(problems...)
}

// mutation runs tests on a changed copy.
type mutation struct{ root, dir string }

// without runs a row's tests twice: on the source as it is, where they must pass,
// and without the filter. It names the tests that fail then.
func (m mutation) without(ctx context.Context, f Filter) (failed []string, line int, err error) {
	path := filepath.Join(m.root, f.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	if n := strings.Count(string(text), f.Old); n != 1 {
		return nil, 0, fmt.Errorf("%q occurs %d times in %s: correct the row", f.Old, n, f.File)
	}
	line = 1 + strings.Count(string(text)[:strings.Index(string(text), f.Old)], "\n")
	overlay, err := m.overlay(path, strings.Replace(string(text), f.Old, f.New, 1))
	if err != nil {
		return nil, line, err
	}
	before, ran, said := m.test(ctx, f)
	switch {
	case len(before) > 0 || said != "":
		return nil, line, fmt.Errorf("with the filter, %s fails already: %s", strings.Join(before, " "), said)
	case ran == 0:
		return nil, line, fmt.Errorf("-run %s in %s finds no test", f.Run, f.Package)
	}
	failed, _, said = m.test(ctx, f, "-overlay", overlay, "-count=1")
	if said != "" {
		return nil, line, fmt.Errorf("without the filter the tests do not run: %s", said)
	}
	if len(failed) == 0 {
		return nil, line, errors.New("no test fails without the filter")
	}
	return failed, line, nil
}

// overlay describes the source with one file replaced.
func (m mutation) overlay(path, text string) (string, error) {
	changed, overlay := filepath.Join(m.dir, "changed.go"), filepath.Join(m.dir, "overlay.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, b, 0o600))
}

// test runs a row's tests and names those that fail, parents of others left out;
// said is why they could not run.
func (m mutation) test(ctx context.Context, f Filter, flags ...string) (failed []string, ran int, said string) {
	args := append([]string{"test", "-json", "-vet=off", "-timeout=5m", "-run", f.Run}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, f.Package)...)
	cmd.Dir = m.root
	cmd.Env = append(os.Environ(), overlayEnv+"="+overlayOf(flags))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	for dec := json.NewDecoder(&stdout); ; {
		var e struct{ Action, Test, Output string }
		if dec.Decode(&e) != nil {
			break
		}
		switch {
		case e.Action == "build-output":
			said += e.Output
		case e.Test != "" && e.Action == "run":
			ran++
		case e.Test != "" && e.Action == "fail":
			failed = append(failed, e.Test)
		}
	}
	failed = slices.DeleteFunc(failed, func(t string) bool {
		return slices.ContainsFunc(failed, func(x string) bool { return strings.HasPrefix(x, t+"/") })
	})
	if err != nil && len(failed) == 0 && said == "" {
		said = err.Error() + " " + stderr.String()
	}
	return failed, ran, strings.TrimSpace(said)
}

// overlayEnv tells tests that read the source, and not what is compiled of it,
// where the changed copy is.
const overlayEnv = "NVSENTINEL_OVERLAY"

func overlayOf(flags []string) string {
	if len(flags) == 0 {
		return ""
	}
	return flags[1]
}

// looks is what a filter looks like in the source.
var looks = regexp.MustCompile(`\.Acts\(\)|(record|store)\.Acting\(|\bStrategy:\s+(record\.)?Process\b`)

// unlisted finds filters without a row.
func unlisted(root string) error {
	var problems []error
	excused, rows := Excused(), Filters()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, _ := filepath.Rel(root, path)
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "shared" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(text), "\n") {
			place := file + ": " + strings.TrimSpace(line)
			if looks.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "//") && !covered(rows, file, line) && !isExcused(excused, place) {
				problems = append(problems, fmt.Errorf("%s:%d has a filter and no row: %s", file, n+1, strings.TrimSpace(line)))
			}
		}
		return nil
	})
	return errors.Join(append(problems, err)...)
}

func covered(rows []Filter, file, line string) bool {
	return slices.ContainsFunc(rows, func(f Filter) bool {
		return f.File == file && slices.ContainsFunc(strings.Split(strings.Trim(f.Old, "\n"), "\n"), func(part string) bool {
			return looks.MatchString(part) && strings.Contains(line, strings.TrimSpace(part))
		})
	})
}

func isExcused(excused map[string]string, place string) bool {
	for prefix := range excused {
		if strings.HasPrefix(place, prefix) {
			return true
		}
	}
	return false
}
