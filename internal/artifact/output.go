package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/healthrule"
)

const (
	// MaxOutputs is how many bytes of JSON the outputs of one object have at most,
	// together: they are kept whole.
	MaxOutputs = 16 << 10
	// previewLength is how many characters of an output its preview shows (RFC 0020 of
	// Cartographer as it was built).
	previewLength = 1024
)

// Output is one value that was read from a healthy object, and what made it.
type Output struct {
	Name string `json:"name"`
	// Digest of the value's YAML, "sha256:" and 64 hexadecimal digits.
	Digest string `json:"digest"`
	// Preview is the begin of the value's YAML.
	Preview string `json:"preview,omitempty"`
	// Value is the whole value as JSON.
	Value string `json:"value"`
	// DefinitionDigest and InputDigest are of the definition that led to the value.
	DefinitionDigest string `json:"definitionDigest"`
	InputDigest      string `json:"inputDigest,omitempty"`
	// LastTransitionTime is when the digest changed last.
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// Digest of a value: that of its YAML, as Cartographer's RFC 0020 has it.
func Digest(v any) (string, error) {
	text, err := yaml.Marshal(v)
	if err != nil {
		return "", err
	}
	return digestOf(text), nil
}

// Preview is the digest of a value, and the begin of its YAML.
func Preview(v any) (digest, begin string, err error) {
	text, err := yaml.Marshal(v)
	if err != nil {
		return "", "", err
	}
	return digestOf(text), preview(text), nil
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Read reads the outputs of a healthy object at their paths. They are those of the
// definition that is applied to it; an output whose digest is that of before keeps its
// time. Either all are there, each once, or the error says which is not.
func Read(live *unstructured.Unstructured, paths map[string]string, by Definition, before []Output, now time.Time) ([]Output, error) {
	var out []Output
	var problems []error
	size := 0
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		o, err := read(live, name, paths[name])
		if size += len(o.Value); size > MaxOutputs {
			err = fmt.Errorf("the outputs have more than %d bytes together", MaxOutputs)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("output %s at %s: %w", name, paths[name], err))
			continue
		}
		o.DefinitionDigest, o.InputDigest, o.LastTransitionTime = by.Digest, by.InputDigest, now.UTC()
		if i := slices.IndexFunc(before, func(b Output) bool { return b.Name == name }); i >= 0 && before[i].Digest == o.Digest {
			o.LastTransitionTime = before[i].LastTransitionTime
		}
		out = append(out, o)
	}
	return out, errors.Join(problems...)
}

func read(live *unstructured.Unstructured, name, path string) (Output, error) {
	value, err := healthrule.Lookup(live, path)
	if err != nil {
		return Output{}, err
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return Output{}, fmt.Errorf("encoding the value: %w", err)
	}
	whole, err := yaml.YAMLToJSON(text)
	if err != nil {
		return Output{}, fmt.Errorf("encoding the value: %w", err)
	}
	return Output{Name: name, Digest: digestOf(text), Preview: preview(text), Value: string(whole)}, nil
}

// preview cuts a text between two characters.
func preview(text []byte) string {
	runes := []rune(strings.ToValidUTF8(string(text), "�"))
	return string(runes[:min(len(runes), previewLength)])
}
