package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/predecessor"
)

// decodeFile reads a strict file over target: TOML, or YAML (or JSON) with the same
// keys if its name ends in .yaml, .yml or .json.
func decodeFile(program, file string, target any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	text := string(content)
	isYAML := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file))
	if isYAML {
		if text, err = fromYAML(content); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	meta, err := toml.Decode(text, target)
	if err != nil {
		return fileError(file, content, err, isYAML)
	}
	var errs []error
	told := map[string]bool{"": true}
	for _, key := range meta.Undecoded() {
		unknown := fmt.Errorf("%s: unknown key %q", file, key.String())
		if hint := predecessor.Hint(predecessor.Key, program, strings.Join(key, ".")); !told[hint] {
			told[hint] = true
			unknown = fmt.Errorf("%w: %s", unknown, hint)
		}
		errs = append(errs, unknown)
	}
	return errors.Join(errs...)
}

// fromYAML is the TOML of a YAML document: one set of keys, rules and errors
// holds for both. A key that is null is one that is not given.
func fromYAML(content []byte) (string, error) {
	keys := map[string]any{}
	numbers := func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }
	if err := yaml.UnmarshalStrict(content, &keys, numbers); err != nil {
		return "", err
	}
	text, err := toml.Marshal(keys)
	return string(text), err
}

// fileError names the file, and the line where the decoder knows it.
func fileError(file string, content []byte, err error, isYAML bool) error {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		key := ""
		if parse.LastKey != "" {
			key = fmt.Sprintf(" (key %q)", parse.LastKey)
		}
		if isYAML { // the lines are those of its TOML
			return fmt.Errorf("%s%s: %s", file, key, parse.Message)
		}
		hint := ""
		if _, err := fromYAML(content); err == nil {
			hint = "; it reads like YAML, which is taken from a file whose name ends in .yaml"
		}
		return fmt.Errorf("%s: line %d%s: %s%s", file, parse.Position.Line, key, parse.Message, hint)
	}
	// The decoder's error for a wrong type is a plain text that begins so.
	if text, ok := strings.CutPrefix(err.Error(), "toml: "); ok {
		if _, rest, found := strings.Cut(text, "(last key "); found && isYAML {
			text = "(last key " + rest
		}
		return fmt.Errorf("%s: %s", file, strings.Replace(text, "(last key ", "(key ", 1))
	}
	return fmt.Errorf("reading %s: %w", file, err)
}
