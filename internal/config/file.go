package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"sigs.k8s.io/yaml"
)

// Decode reads the content of a strict file over target, which points to a struct: TOML,
// or YAML (or JSON) with the same keys if the file's name ends in .yaml, .yml or .json.
// It resolves no reference: one outside of a Secret is an error. Errors name the file,
// and line or key.
func Decode(file string, content []byte, target any) error {
	return decode("", file, content, target)
}

// decode is Decode for a file of a program.
func decode(program, file string, content []byte, target any) error {
	keys, text := map[string]any{}, string(content)
	isYAML := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file))
	if isYAML {
		if err := fromYAML(content, &keys); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	} else if _, err := toml.Decode(text, &keys); err != nil {
		return fileError(file, content, err, true)
	}
	escaped, err := literals(file, reflect.TypeOf(target).Elem(), keys)
	if err != nil {
		return err
	}
	lines := !isYAML && !escaped
	if !lines {
		written, err := toml.Marshal(keys)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		text = string(written)
	}
	meta, err := toml.Decode(text, target)
	if err != nil {
		return fileError(file, content, err, lines)
	}
	if !lines {
		text = ""
	}
	return unknown(source{program, file, text}, target, meta.Undecoded())
}

// source is a file of a program, or of none, with its text, to find the lines of keys in.
type source struct{ program, file, text string }

// unknown is the error of keys that no field has. What is in an unknown table is not named
// besides. The command that converts is named where it may help: not behind a typo.
func unknown(of source, target any, keys []toml.Key) error {
	var errs []error
	tables, earlier := map[string]bool{}, false
	for _, key := range keys {
		tables[key.String()] = true
		if len(key) > 1 && tables[key[:len(key)-1].String()] {
			continue
		}
		at := ""
		if line := lineOf(of.text, key); line > 0 {
			at = fmt.Sprintf("line %d: ", line)
		}
		unknown := fmt.Errorf("%s: %sunknown key %q", of.file, at, key.String())
		hint, typo := instead(target, key)
		if hint != "" {
			unknown = fmt.Errorf("%w: %s", unknown, hint)
		}
		earlier = earlier || !typo
		errs = append(errs, unknown)
	}
	if earlier && of.program != "" {
		errs = append(errs, fmt.Errorf("if %s is a file of the earlier NVSentinel, convert it with nvsentinel convert-config --program %s %s",
			of.file, of.program, of.file))
	}
	return errors.Join(errs...)
}

// lineOf is the first line that assigns the last part of the key, or 0: the decoder
// does not report where a key stands.
func lineOf(text string, key toml.Key) int {
	last := regexp.MustCompile(`^\s*(\[+(.*\.)?)?"?` + regexp.QuoteMeta(key[len(key)-1]) + `"?\s*[\]=]`)
	for i, line := range strings.Split(text, "\n") {
		if last.MatchString(line) {
			return i + 1
		}
	}
	return 0
}

// fromYAML reads the keys of a YAML document, which are decoded as those of TOML:
// one set of keys, rules and errors holds for both. A key that is null is one that
// is not given.
func fromYAML(content []byte, keys *map[string]any) error {
	numbers := func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }
	return yaml.UnmarshalStrict(content, keys, numbers)
}

// fileError names the file, and the line where the decoder read the file itself.
func fileError(file string, content []byte, err error, lines bool) error {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		key := ""
		if parse.LastKey != "" {
			key = fmt.Sprintf(" (key %q)", parse.LastKey)
		}
		if !lines { // they are those of what was made of it
			return fmt.Errorf("%s%s: %s", file, key, parse.Message)
		}
		hint := ""
		if err := fromYAML(content, &map[string]any{}); err == nil {
			hint = ". The content is YAML, which requires a file name that ends in .yaml"
		}
		return fmt.Errorf("%s: line %d%s: %s%s", file, parse.Position.Line, key, parse.Message, hint)
	}
	// The decoder's error for a wrong type is a plain text that begins so.
	if text, ok := strings.CutPrefix(err.Error(), "toml: "); ok {
		if _, rest, found := strings.Cut(text, "(last key "); found && !lines {
			text = "(last key " + rest
		}
		return fmt.Errorf("%s: %s", file, strings.Replace(text, "(last key ", "(key ", 1))
	}
	return fmt.Errorf("reading %s: %w", file, err)
}
