// Package overlay changes the source in a copy that only the compiler sees (go build
// -overlay), so that tests can be run against what must not be: a filter taken away, a
// comparison turned around, a fault of our own.
package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Env is the variable that names the overlay for tests that read source files instead of the
// compiled code.
const Env = "NVSENTINEL_OVERLAY"

// Edit is one place of a file that is to be another.
type Edit struct {
	// File is relative to the repository; Old occurs in it once, New takes its place.
	File, Old, New string
}

// Root is the folder of the workspace, which the go command knows.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("asking for the workspace: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Line returns the line where the edit's place begins. It is an error if the source has no such
// place, or several.
func (e Edit) Line(root string) (int, error) {
	text, err := os.ReadFile(filepath.Join(root, e.File))
	if err != nil {
		return 0, err
	}
	return e.in(string(text))
}

func (e Edit) in(text string) (line int, err error) {
	if n := strings.Count(text, e.Old); n != 1 {
		return 0, fmt.Errorf("%q occurs %d times in %s: correct the row", e.Old, n, e.File)
	}
	return 1 + strings.Count(text[:strings.Index(text, e.Old)], "\n"), nil
}

// Texts are the files as the edits make them, by their paths.
func Texts(root string, edits []Edit) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, e.File)
		if _, changed := out[path]; !changed {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			out[path] = string(text)
		}
		if _, err := e.in(out[path]); err != nil {
			return nil, err
		}
		out[path] = strings.Replace(out[path], e.Old, e.New, 1)
	}
	return out, nil
}

// Write puts texts into folders below dir, which it creates, and returns the file for the go
// command's -overlay.
func Write(dir string, texts map[string]string) (file string, err error) {
	replace := map[string]string{}
	var problems []error
	for i, path := range slices.Sorted(maps.Keys(texts)) {
		own := filepath.Join(dir, strconv.Itoa(i))
		replace[path] = filepath.Join(own, filepath.Base(path)) // as the compiler's errors name it
		problems = append(problems, os.MkdirAll(own, 0o755), os.WriteFile(replace[path], []byte(texts[path]), 0o600))
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	file = filepath.Join(dir, "overlay.json")
	return file, errors.Join(append(problems, err, os.WriteFile(file, b, 0o600))...)
}

// Source reads a file of the repository as the overlay of Env has it, if there is one.
func Source(root, file string) (string, error) {
	path := filepath.Join(root, file)
	if overlay := os.Getenv(Env); overlay != "" {
		text, err := os.ReadFile(overlay)
		if err != nil {
			return "", err
		}
		var o struct{ Replace map[string]string }
		if err := json.Unmarshal(text, &o); err != nil {
			return "", fmt.Errorf("reading the overlay: %w", err)
		}
		if changed, ok := o.Replace[path]; ok {
			path = changed
		}
	}
	text, err := os.ReadFile(path)
	return string(text), err
}
