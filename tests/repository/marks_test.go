package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// literalMark finds what internal/nodemark is there for: a label or an annotation of a
// Node that is read or written by its key, and a key in another place. The devices
// of a Pod are compared by their text.
var literalMark = regexp.MustCompile(`\.(Annotations|Labels)(, |\[)nodemark\.([A-CE-Z]|D[a-df-z])` +
	`|"(dgxc\.nvidia\.com/(nvsentinel-(state|session|repair|reset|lemon|released)|devices)|quarantine(HealthEvent|dNode)|latestFaultRemediation|nvsentinel\.dgxc\.nvidia\.com/managed|k8saas\.nvidia\.com/Managed)` +
	`|"No Health Failures"|"Is(Not)?Healthy"`)

// TestMarksAreReadInOnePlace: product code reads and writes what services put on a
// Node through internal/nodemark.
func TestMarksAreReadInOnePlace(t *testing.T) {
	for name, text := range sources(t) {
		if strings.HasPrefix(name, "internal/nodemark/") || name == "data-models/record/event.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if found := literalMark.FindString(line); found != "" {
				t.Errorf("%s:%d has %s: ask internal/nodemark", name, i+1, found)
			}
		}
	}
}

// sources are all files of Go outside of tests, by their paths.
func sources(t *testing.T) map[string]string {
	t.Helper()
	root, all := filepath.Join("..", ".."), map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator))); {
		case entry.IsDir() && (name == "tests" || name == "bin" || strings.HasPrefix(entry.Name(), ".") && name != root):
			return filepath.SkipDir
		case entry.IsDir(), !strings.HasSuffix(name, ".go"):
			return nil
		default:
			text, err := os.ReadFile(path)
			all[name] = string(text)
			return err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Errorf("read %d files: too few to mean anything", len(all))
	}
	return all
}
