package mutation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Pure are the folders of the pure packages, as the linter's configuration lists them.
func Pure(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		return nil, err
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules struct{ Pure struct{ Files []string } }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("reading .golangci.yml: %w", err)
	}
	var out []string
	for _, pattern := range config.Linters.Settings.Depguard.Rules.Pure.Files {
		name, ok := strings.CutPrefix(pattern, "**/")
		if !ok {
			continue
		}
		found, err := folders(root, filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf(".golangci.yml lists no pure packages under linters.settings.depguard.rules.pure.files")
	}
	slices.Sort(out)
	return out, nil
}

// folders are those of a name, in the workspace or one folder deeper.
func folders(root, name string) ([]string, error) {
	var out []string
	for _, pattern := range []string{name, "*/" + name} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			folder, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			out = append(out, folder)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf(".golangci.yml names %s, which does not exist", name)
	}
	return out, nil
}

// Explained reads the list of changes that may go unnoticed: a line has the change as
// Key names it, and the next line, which begins with a space, why. Lines that begin
// with # are for people.
func Explained(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out, last := map[string]string{}, ""
	for n, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " ") && last != "":
			out[last], last = strings.TrimSpace(line), ""
		case last != "":
			return nil, fmt.Errorf("%s:%d: %s has no explanation on the line below it", path, n, last)
		default:
			last = line
		}
	}
	if last != "" {
		return nil, fmt.Errorf("%s: %s has no explanation on the line below it", path, last)
	}
	return out, nil
}
