package config_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

type inner struct {
	Path  string        `toml:"path" flag:"inner-path" usage:"a path"`
	After time.Duration `toml:"after" flag:"after" usage:"a time"`
}

type sample struct {
	Name   string            `toml:"name" flag:"name" alias:"title" usage:"a name"`
	On     bool              `toml:"on" flag:"on" usage:"a switch"`
	Count  int               `toml:"count" flag:"count" usage:"a number"`
	Small  uint32            `toml:"small" flag:"small" usage:"a small number"`
	Ratio  float64           `toml:"ratio" flag:"ratio" usage:"a ratio"`
	List   []string          `toml:"list" flag:"list" usage:"a list"`
	Inner  inner             `toml:"inner"`
	Rules  []inner           `toml:"rules"`
	Labels map[string]string `toml:"labels"`

	Word    config.Secret            `toml:"word" flag:"word" usage:"a secret"`
	Words   []config.Secret          `toml:"words"`
	ByName  map[string]config.Secret `toml:"byName"`
	Token   config.SecretFile        `toml:"tokenFile" flag:"token-file" usage:"a file of a secret"`
	Nothing any                      `toml:"nothing"`
}

func (s sample) Validate() error {
	var problems []error
	if s.Count < 0 {
		problems = append(problems, errors.New("count must not be negative"))
	}
	if s.Name == "" {
		problems = append(problems, errors.New("name is empty"))
	}
	return errors.Join(problems...)
}

func defaults() sample {
	return sample{Name: "default", Count: 3, List: []string{"x", "y"}, Inner: inner{Path: "/p", After: time.Minute}}
}

// load reads a file's content and a command line over the defaults.
func load(t *testing.T, file string, args ...string) (sample, error) {
	t.Helper()
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := defaults()
	flags := flag.NewFlagSet("svc", flag.ContinueOnError)
	flags.SetOutput(&bytes.Buffer{})
	set, err := config.Bind(flags, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	env := map[string]string{"SECRET": "s3cret", "OTHER": "s3cret"}
	return cfg, set.Load(path, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

func TestLoad(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		file string
		args []string
		edit func(*sample)
	}{
		{name: "defaults", edit: func(*sample) {}},
		{
			name: "file over defaults",
			file: "name = 'f'\non = true\nlist = ['a']\n[inner]\nafter = '90s'\n[[rules]]\npath = 'r'\n[labels]\na = 'b'\n",
			edit: func(s *sample) {
				s.Name, s.On, s.List, s.Inner.After = "f", true, []string{"a"}, 90*time.Second
				s.Rules, s.Labels = []inner{{Path: "r"}}, map[string]string{"a": "b"}
			},
		},
		{
			name: "flags over file",
			file: "name = 'f'\ncount = 5\nlist = ['a']\n[inner]\npath = '/f'\nafter = '1s'\n",
			args: []string{"-name=g", "--on", "--count", "9", "--small=7", "--ratio=0.5", "--list=b, c,", "--after=2h"},
			edit: func(s *sample) {
				*s = sample{
					Name: "g", On: true, Count: 9, Small: 7, Ratio: 0.5,
					List: []string{"b", "c"}, Inner: inner{Path: "/f", After: 2 * time.Hour},
				}
			},
		},
		{name: "alias", args: []string{"--title=t"}, edit: func(s *sample) { s.Name = "t" }},
		{name: "last flag wins", args: []string{"--title=t", "--name=u"}, edit: func(s *sample) { s.Name = "u" }},
		{name: "empty list", args: []string{"--list="}, edit: func(s *sample) { s.List = []string{} }},
		{
			name: "references",
			file: "word = '${file:" + secret + "}'\nwords = ['${env:SECRET}', 'of the file itself']\n[byName]\na = '${env:OTHER}'\n",
			edit: func(s *sample) {
				s.Word, s.Words = config.NewSecret("from a file"), []config.Secret{config.NewSecret("s3cret"), config.NewSecret("of the file itself")}
				s.ByName = map[string]config.Secret{"a": config.NewSecret("s3cret")}
			},
		},
		{name: "a reference in a flag", args: []string{"--word=${env:SECRET}"}, edit: func(s *sample) { s.Word = config.NewSecret("s3cret") }},
		{
			name: "a reference that a flag replaces is not read", file: "word = '${file:/does/not/exist}'\n", args: []string{"--word=w"},
			edit: func(s *sample) { s.Word = config.NewSecret("w") },
		},
		{
			name: "texts that look alike",
			file: "name = '$${env:SECRET} ${x} $${file:/x}'\nword = '$${env:SECRET}'\nlist = ['$$${env:A}', '${ENV:A}', '$(env:A)', '${envA}']\n[labels]\na = '$${env:A}'\n",
			args: []string{"--inner-path=$${file:/x}"},
			edit: func(s *sample) {
				s.Name, s.Word, s.Inner.Path = "${env:SECRET} ${x} ${file:/x}", config.NewSecret("${env:SECRET}"), "${file:/x}"
				s.List, s.Labels = []string{"$${env:A}", "${ENV:A}", "$(env:A)", "${envA}"}, map[string]string{"a": "${env:A}"}
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := load(t, tt.file, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			tt.edit(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

// isForSecrets ends the error of a reference that is no secret's.
const isForSecrets = ": a reference is allowed only in keys of type secret (docs/reference/configuration), write the value itself, or write $${ for a literal ${"

// TestErrors shows what a person reads; FILE stands for the file's path.
func TestErrors(t *testing.T) {
	tests := []struct {
		name string
		file string
		args []string
		want string
	}{
		{"unknown keys", "nmae = 'x'\n[inner]\npaht = 'y'\n", nil, "FILE: line 1: unknown key \"nmae\": did you mean name?\nFILE: line 3: unknown key \"inner.paht\": did you mean path?"},
		{"unknown key in a list", "[[rules]]\npath = 'x'\n[[rules]]\naftre = '1s'\n", nil, "FILE: line 4: unknown key \"rules.aftre\": did you mean after?"},
		{"unknown table", "[rule]\npath = 'x'\n[rule.more]\nx = 1\n[inner]\nwhen = 'y'\n", nil, "FILE: line 1: unknown key \"rule\": did you mean rules?\nFILE: line 6: unknown key \"inner.when\"\nif FILE is a file of the earlier NVSentinel, convert it with nvsentinel convert-config --program svc FILE"},
		{"wrong type", "name = 'x'\ncount = 'three'\n", nil, "FILE: line 2 (key \"count\"): incompatible types: TOML value has type string; destination has type integer"},
		{"wrong type below", "[inner]\nafter = 'soon'\n", nil, "FILE: line 2 (key \"inner.after\"): invalid duration: \"soon\""},
		{"syntax", "name = \n", nil, "FILE: line 1 (key \"name\"): expected value but found '\\n' instead"},
		{"validation", "name = ''\ncount = -1\n", nil, "count must not be negative\nname is empty"},
		{"bad number", "", []string{"--count=three"}, "invalid value \"three\" for flag -count: \"three\" is not a whole number of 64 bits"},
		{"too large", "", []string{"--small=4294967296"}, "invalid value \"4294967296\" for flag -small: \"4294967296\" is not a non-negative whole number of 32 bits"},
		{"bad duration", "", []string{"--after=soon"}, "invalid value \"soon\" for flag -after: \"soon\" is not a duration such as 90s or 2h"},
		{"bad switch", "", []string{"--on=maybe"}, "invalid boolean value \"maybe\" for -on: \"maybe\" is not true or false"},
		{"bad ratio", "", []string{"--ratio=x"}, "invalid value \"x\" for flag -ratio: \"x\" is not a number"},
		{"unknown flag", "", []string{"--nmae=x"}, "flag provided but not defined: -nmae"},
		{"missing variable", "words = ['a', '${env:NONE}']\n", nil, "words[1]: resolving ${env:NONE}: the environment has no NONE: set it, for example with secretKeyRef"},
		{"missing secret file", "word = '${file:/does/not/exist}'\n", nil, "word: resolving ${file:/does/not/exist}: stat /does/not/exist: no such file or directory"},
		{"relative secret file", "", []string{"--word=${file:word}"}, "word: resolving ${file:word}: the path of a file must be absolute"},
		{"part of a secret", "[byName]\na = 'postgres://u:${env:SECRET}@h'\n", nil, "byName.a: ${env:SECRET} is part of a longer text, but a reference must be the complete value: move the complete value into the file or the variable"},
		{
			"references that are no secrets", "name = '${env:SECRET}'\n[[rules]]\npath = 'a ${file:/etc/passwd} b'\n[nothing]\n'${env:A}' = 1\n", nil,
			"FILE: key \"name\": ${env:SECRET}" + isForSecrets + "\nFILE: key \"nothing.${env:A}\": ${env:A}: a reference is not allowed in a key" +
				"\nFILE: key \"rules[0].path\": ${file:/etc/passwd}" + isForSecrets,
		},
		{"a reference in a flag", "", []string{"--list=a,${env:SECRET}"}, "invalid value \"a,${env:SECRET}\" for flag -list: ${env:SECRET}" + isForSecrets},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.file, tt.args...)
			if err == nil {
				t.Fatal("no error")
			}
			output := regexp.MustCompile(`/\S*/c\.toml`).ReplaceAllString(err.Error(), "FILE")
			if diff := cmp.Diff(tt.want, output); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMissingFileIsAnError(t *testing.T) {
	cfg := defaults()
	set, err := config.Bind(flag.NewFlagSet("svc", flag.ContinueOnError), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = set.Load("/does/not/exist.toml", nil)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/does/not/exist.toml") {
		t.Errorf("got %v", err)
	}
}

func TestBindRefuses(t *testing.T) {
	tests := []struct {
		name   string
		target any
		want   string
	}{
		{"no pointer", sample{}, "config_test.sample is not a pointer to a struct"},
		{"a map as a flag", &struct {
			M map[string]string `flag:"m"`
		}{}, "--m: a map[string]string cannot be a flag"},
		{"one flag twice", &struct {
			A string `flag:"a"`
			B string `flag:"a"`
		}{}, "--a: declared twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.Bind(flag.NewFlagSet("svc", flag.ContinueOnError), tt.target)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestPrintUsage(t *testing.T) {
	var out bytes.Buffer
	flags := flag.NewFlagSet("svc", flag.ContinueOnError)
	flags.SetOutput(&out)
	cfg := struct {
		Name  string        `flag:"name" usage:"a name"`
		After time.Duration `flag:"after" usage:"a time"`
		Words []string      `flag:"words" usage:"some words"`
	}{After: time.Minute, Words: []string{"a", "b"}}
	if _, err := config.Bind(flags, &cfg); err != nil {
		t.Fatal(err)
	}
	config.PrintUsage(flags)
	want := `Usage of svc:
  --after
    	a time (default 1m0s)
  --name
    	a name
  --words
    	some words (default a,b)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}
