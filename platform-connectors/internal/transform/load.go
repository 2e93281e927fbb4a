// Package transform carries out the pipeline: it reads its files and reads them
// again when they change, knows the nodes, and changes records on their way from
// the spool to the sinks. What becomes of an event is decided by package
// pipeline.
package transform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// load reads the file that names the stages, and theirs; without a file there are
// none. Unknown keys and wrong values are errors that name file and key.
func load(file string) (pipeline.Config, error) {
	c := pipeline.Default()
	if file == "" {
		return c, nil
	}
	var order pipeline.Order
	problems := []error{decode(file, &order)}
	for _, s := range order.Stages {
		if !s.Enabled {
			continue
		}
		if s.Name == pipeline.StageRetired {
			c.Retired = true
			continue
		}
		c.Stages = append(c.Stages, s.Name)
		target := map[string]any{
			pipeline.StageMetadata: &c.Metadata, pipeline.StageOverrides: &c.Overrides,
			pipeline.StageConfirmation: &c.Confirmation,
		}[s.Name]
		switch {
		case target == nil: // Validate says so
		case s.Config == "":
			problems = append(problems, fmt.Errorf("%s: stage %s has no config", file, s.Name))
		default:
			problems = append(problems, decode(beside(file, s.Config), target))
		}
	}
	return c, errors.Join(problems...)
}

// named are the file and those of its stages, as far as it can be read.
func named(file string) []string {
	if file == "" {
		return nil
	}
	var order pipeline.Order
	names := []string{file}
	if err := decode(file, &order); err != nil {
		return names
	}
	for _, s := range order.Stages {
		if s.Enabled && s.Config != "" && s.Name != pipeline.StageRetired {
			names = append(names, beside(file, s.Config))
		}
	}
	return names
}

// beside is a name that may be relative to the folder of the file that has it.
func beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// decode reads a strict TOML file over the defaults in target.
func decode(path string, target any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return config.Decode(path, content, target)
}
