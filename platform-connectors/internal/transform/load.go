// Package transform carries out the pipeline: it reads its files and reads them
// again when they change, knows the nodes, and changes records on their way from
// the spool to the sinks. What becomes of an event is decided by package
// pipeline.
package transform

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// load reads the file that names the stages, and theirs. Unknown keys and wrong
// values are errors that name file and key; digest tells one content from
// another, also of files that are bad.
func load(file string) (c pipeline.Config, digest [sha256.Size]byte, err error) {
	var order pipeline.Order
	sum := sha256.New()
	read := func(path string, target any) error {
		text, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s\x00%v\x00%s\x00", path, err, text)
		if err != nil {
			return fmt.Errorf("reading the pipeline: %w", err)
		}
		return decode(path, target)
	}
	c = pipeline.Default()
	problems := []error{read(file, &order)}
	for _, s := range order.Stages {
		if !s.Enabled {
			continue
		}
		c.Stages = append(c.Stages, s.Name)
		target := map[string]any{
			pipeline.StageMetadata: &c.Metadata, pipeline.StageOverrides: &c.Overrides, pipeline.StageDedup: &c.Dedup,
			pipeline.StageConfirmation: &c.Confirmation,
		}[s.Name]
		path := s.Config
		switch {
		case target == nil: // Validate says so
		case path == "":
			problems = append(problems, fmt.Errorf("%s: stage %s has no config", file, s.Name))
		default:
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(file), path)
			}
			problems = append(problems, read(path, target))
		}
	}
	copy(digest[:], sum.Sum(nil))
	return c, digest, errors.Join(problems...)
}

// decode reads a strict TOML file over the defaults in target.
func decode(path string, target any) error {
	set, err := config.Bind(flag.NewFlagSet(path, flag.ContinueOnError), target)
	if err != nil {
		return err
	}
	return set.Load(path, func(string) (string, bool) { return "", false })
}
