package config

import (
	"fmt"
	"log/slog"
	"reflect"
)

// redacted stands for a secret in everything that is printed.
const redacted = "[redacted]"

// Secret is a text that nothing prints: formatting, encoding and logging show the
// reference that it came by, or a placeholder. Only fields of this type take
// references.
type Secret struct {
	// text is a pointer, which fmt does not follow: in an unexported field it cannot
	// call the methods below.
	text      *string
	reference reference // zero for a text that stands in the configuration itself
}

// NewSecret is a secret that no reference names.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal is the secret text: for the place where it is used, never for a message.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// Referenced reports whether the text came by a reference.
func (s Secret) Referenced() bool { return s.reference != reference{} }

// Equal reports whether two secrets have the same text.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

// String is the reference or a placeholder; empty where there is no text.
func (s Secret) String() string {
	switch {
	case s.Referenced():
		return s.reference.String()
	case s.IsZero():
		return ""
	}
	return redacted
}

// GoString is String: %#v shows no more.
func (s Secret) GoString() string { return s.String() }

// Format writes String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText is String: JSON, YAML and TOML show no more.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String: logs show no more.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// UnmarshalText takes a text or a reference, which Load resolves.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

// SecretFile is the path of a file with a secret that is read when it is used, and
// again each time. One file is given to one key of a configuration: Load refuses a
// second, and the pod's own token for the API server.
type SecretFile string

// Read reads the secret.
func (s SecretFile) Read() (string, error) { return ReadSecret(string(s)) }

var (
	secretType     = reflect.TypeFor[Secret]()
	secretFileType = reflect.TypeFor[SecretFile]()
)
