package testrun

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The file of flaky tests has a paragraph for each flaky package: a line that
// begins with this, and the first failure below it, indented.
const flakyPrefix = "FLAKY "

// String is the paragraph of a flaky package.
func (f Failure) String() string {
	return fmt.Sprintf("%s%s %s\n    %s\n", flakyPrefix, f.Package, f.names(), strings.ReplaceAll(f.First, "\n", "\n    "))
}

// Earlier reads the packages named in the file of flaky tests; none if there is no file.
func Earlier(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the flaky tests of earlier runs: %w", err)
	}
	var packages []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, flakyPrefix); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				packages = append(packages, fields[0])
			}
		}
	}
	return packages, nil
}

// Record appends flaky packages to the file.
func Record(file string, flaky []Failure) error {
	if len(flaky) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("recording flaky tests: %w", err)
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("recording flaky tests: %w", err)
	}
	for _, f := range flaky {
		if _, e := out.WriteString(f.String()); e != nil {
			err = e
		}
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("recording flaky tests: %w", err)
	}
	return nil
}
