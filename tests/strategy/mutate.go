package strategy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/tests/overlay"
)

// Mutate takes every filter away, one at a time, in a copy that only the
// compiler sees, runs the row's tests and prints which of them fail. A row whose
// tests pass, or that does not build, is an error, as is a filter in the source
// without a row.
func Mutate(ctx context.Context, root string, only *regexp.Regexp, out io.Writer) error {
	problems := []error{unlisted(root)}
	rows := 0
	for _, f := range Filters() {
		if !only.MatchString(f.Layer + " " + f.Description) {
			continue
		}
		rows++
		failed, line, err := without(ctx, root, f)
		verdict := strings.Join(failed, " ")
		if err != nil {
			verdict = "SURVIVES: " + err.Error()
			problems = append(problems, fmt.Errorf("%s, %s: %w", f.Layer, f.Description, err))
		}
		fmt.Fprintf(out, "| %d | %s | %s | %s:%d | %s |\n", rows, f.Layer, f.Description, f.File, line, verdict)
	}
	return errors.Join(problems...)
}

// without names the tests that fail without a filter, and the line where it was.
func without(ctx context.Context, root string, f Filter) (failed []string, line int, err error) {
	edit := overlay.Edit{File: f.File, Old: f.Old, New: f.New}
	if line, err = edit.Line(root); err != nil {
		return nil, 0, err
	}
	texts, err := overlay.Texts(root, []overlay.Edit{edit})
	if err != nil {
		return nil, line, err
	}
	failed, err = overlay.Trial{Root: root, Texts: texts, Args: []string{"-timeout=5m", "-run", f.Run, f.Package}}.Notice(ctx)
	return failed, line, err
}

// filterPattern is what a filter looks like in the source.
var filterPattern = regexp.MustCompile(`\.Acts\(\)|(record|store)\.Acting\(|\bStrategy:\s+(record\.)?Process\b`)

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
			if filterPattern.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "//") && !covered(rows, file, line) && !isExcused(excused, place) {
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
			return filterPattern.MatchString(part) && strings.Contains(line, strings.TrimSpace(part))
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
