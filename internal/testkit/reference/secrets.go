package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/config"
)

// planted is in every secret of these tests, and may be in nothing that is printed.
const planted = "pl4nted"

// shapes of secrets, with what their readers trip over. Those of a store's address have
// a test of their own, in storeopen.
var shapes = []string{
	planted, planted + "://h/d", "%zz" + planted, "postgres://u:a/" + planted + "@h/d", "postgres://u:p@h/d?sslmode=" + planted, "mongodb://u:a@" + planted + "@h/d?x",
	"https://h:" + planted + "/x", "http://h.example.com/" + planted + "?sig=" + planted, "s3://" + planted + "/k?x=" + planted,
}

// Printed is all that printing, encoding and logging make of a value.
func Printed(t testing.TB, v any) string {
	t.Helper()
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n"+verb+"\n"+verb+"\n", v, &v, struct{ v any }{v})
	}
	for name, encode := range map[string]func(any) ([]byte, error){"JSON": json.Marshal, "YAML": func(v any) ([]byte, error) { return yaml.Marshal(v) }, "TOML": toml.Marshal} {
		text, err := encode(v)
		fmt.Fprintf(&out, "%s: %s %v\n", name, text, err)
	}
	for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(h).Info("logged", "value", v, slog.Group("in", "a", v))
	}
	return out.String()
}

// attempt loads a configuration over its defaults.
type attempt struct {
	document  map[string]any
	args      []string
	variables map[string]string
}

// load returns the configuration and all warnings for the operator.
func (a attempt) load(t testing.TB, defaults any) (cfg reflect.Value, shown string) {
	t.Helper()
	cfg = reflect.New(reflect.TypeOf(defaults))
	cfg.Elem().Set(reflect.ValueOf(defaults))
	var out bytes.Buffer
	flags := flag.NewFlagSet("program", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	set, err := config.Bind(flags, cfg.Interface())
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse(a.args); err != nil {
		return cfg, err.Error()
	}
	file := ""
	if a.document != nil {
		text, err := toml.Marshal(a.document)
		file = filepath.Join(t.TempDir(), "c.toml")
		if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Load(file, func(name string) (string, bool) { v, ok := a.variables[name]; return v, ok }); err != nil {
		fmt.Fprintln(&out, err)
	}
	flags.SetOutput(&out)
	config.PrintUsage(flags)
	flags.Visit(func(f *flag.Flag) { fmt.Fprintln(&out, f.Value) })
	return cfg, out.String()
}

// tryReferences plants a reference in every key of a configuration that is no secret,
// in the names of its tables, its flags and its variables: each is refused, by a message
// that names it and shows the reference alone.
func tryReferences(t testing.TB, defaults any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(planted), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := "${file:" + file + "}"
	refused := func(what string, a attempt, names ...string) {
		t.Helper()
		cfg, shown := a.load(t, defaults)
		for _, want := range append(names, ref) {
			if !strings.Contains(shown, want) {
				t.Errorf("a reference in %s is not refused with %q: %s", what, want, shown)
			}
		}
		if strings.Contains(shown+Printed(t, cfg.Interface()), planted) {
			t.Errorf("a reference in %s is resolved: %s", what, shown)
		}
	}
	for _, k := range keysOf(reflect.TypeOf(defaults)) {
		if k.kind.Kind() == reflect.Map {
			refused("a name in "+k.path, attempt{document: k.file(map[string]any{ref: "x"})}, "c.toml", k.path)
			continue
		}
		if k.secret {
			continue
		}
		if k.file != nil {
			refused(k.path, attempt{document: k.file(ref)}, "c.toml", fmt.Sprintf("key %q", k.path))
			refused(k.path, attempt{document: k.file("a " + ref + " b")}, "c.toml", fmt.Sprintf("key %q", k.path))
		}
		for _, name := range k.flags {
			refused("--"+name, attempt{args: []string{"--" + name + "=" + ref}}, "-"+name)
		}
		for _, name := range k.variables {
			refused(name, attempt{variables: map[string]string{name: ref}}, "variable "+name)
		}
	}
}

// wordy ends the names of keys that hold a secret themselves.
var wordy = regexp.MustCompile(`(?i)(password|passphrase|secret|token|api_?key)$`)

// trySecrets plants secrets in every key that is one, as they are and by references to
// files and variables: nothing that is printed, encoded or logged of the configuration,
// and no error, holds one. A key that sounds like a secret has to be one.
func trySecrets(t testing.TB, defaults any) {
	t.Helper()
	for _, k := range keysOf(reflect.TypeOf(defaults)) {
		if !k.secret {
			if k.kind.Kind() == reflect.String && wordy.MatchString(k.path) {
				t.Errorf("%s is a %s: a secret is a config.Secret, or a config.SecretFile by the name of ...File", k.path, k.kind)
			}
			continue
		}
		for i, shape := range shapes {
			attempts := k.attempts(t, shape)
			if i > 0 { // the way makes no difference to what is validated
				attempts = attempts[:1]
			}
			for _, a := range attempts {
				cfg, shown := a.load(t, defaults)
				if text := shown + Printed(t, cfg.Interface()) + Printed(t, cfg.Elem().Interface()); strings.Contains(text, planted) {
					t.Errorf("%s = %q is printed:\n%s", k.path, shape, text)
				}
			}
		}
	}
}

// attempts are all ways to give a secret.
func (k key) attempts(t testing.TB, secret string) (all []attempt) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	const variable = "A_VARIABLE_OF_THE_TEST"
	for _, text := range []string{"${file:" + file + "}", "${env:" + variable + "}", secret} {
		variables := map[string]string{variable: secret}
		if k.file != nil {
			all = append(all, attempt{document: k.file(text), variables: variables})
		}
		for _, name := range k.flags {
			all = append(all, attempt{args: []string{"--" + name + "=" + text}, variables: variables})
		}
		for _, name := range k.variables {
			all = append(all, attempt{variables: map[string]string{variable: secret, name: text}})
		}
	}
	return all
}
