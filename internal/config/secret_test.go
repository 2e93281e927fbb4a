package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

// write puts a file into a new folder.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNothingPrintsASecret, in whatever it is held.
func TestNothingPrintsASecret(t *testing.T) {
	const planted = "pl4nted"
	file := write(t, "secret", planted)
	for what, args := range map[string]struct{ arg, shows string }{
		"a text":      {planted, "[redacted]"},
		"a reference": {"${file:" + file + "}", "${file:" + file + "}"},
	} {
		cfg, err := load(t, "words = ['pl4nted']\n[byName]\na = 'pl4nted'\n", "--word="+args.arg)
		if err != nil || cfg.Word.Reveal() != planted || cfg.Word.IsZero() {
			t.Fatalf("%s: %q, %v", what, cfg.Word.Reveal(), err)
		}
		for _, v := range []any{cfg, cfg.Word, struct{ word config.Secret }{cfg.Word}, []config.Secret{cfg.Word}} {
			if text := reference.Printed(t, v); strings.Contains(text, planted) {
				t.Errorf("%s in a %T is printed:\n%s", what, v, text)
			}
		}
		if text := cfg.Word.String(); text != args.shows {
			t.Errorf("%s is shown as %q, want %q", what, text, args.shows)
		}
	}
	if text := reference.Printed(t, config.NewSecret("")); strings.Contains(text, "redacted") {
		t.Errorf("no secret is shown as one:\n%s", text)
	}
	text, err := json.Marshal(map[string]config.Secret{"a": config.NewSecret(planted)})
	if err != nil || string(text) != `{"a":"[redacted]"}` {
		t.Errorf("%s, %v", text, err)
	}
}

// TestReadSecret: one line of a regular file of bounded size, also behind the links of
// a mounted Secret.
func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "..2026"), 0o700); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "..2026", "uri"), []byte("mounted\n"), 0o600),
		os.Symlink("..2026", filepath.Join(dir, "..data")), os.Symlink("..data/uri", filepath.Join(dir, "uri")),
		os.Symlink("nowhere", filepath.Join(dir, "broken")), syscall.Mkfifo(pipe, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct{ path, want, fail string }{
		"a line":           {path: write(t, "s", "a b\r\n"), want: "a b"},
		"a mounted Secret": {path: filepath.Join(dir, "uri"), want: "mounted"},
		"the longest":      {path: write(t, "s", strings.Repeat("x", config.MaxSecret)), want: strings.Repeat("x", config.MaxSecret)},
		"longer":           {path: write(t, "s", strings.Repeat("x", config.MaxSecret+1)), fail: "has more than 65536 bytes"},
		"two lines":        {path: write(t, "s", "pl4nted\npl4nted"), fail: "must hold one line"},
		"an environment":   {path: write(t, "s", "A=pl4nted\x00B=pl4nted\x00"), fail: "must hold one line"},
		"nothing":          {path: write(t, "s", "\n"), fail: "is empty"},
		"a folder":         {path: dir, fail: "is not a regular file"},
		"a device":         {path: "/dev/zero", fail: "is not a regular file"},
		"a pipe":           {path: pipe, fail: "is not a regular file"},
		"no file":          {path: filepath.Join(dir, "none"), fail: "no such file"},
		"a broken link":    {path: filepath.Join(dir, "broken"), fail: "no such file"},
	} {
		got, err := config.ReadSecret(tt.path)
		if got != tt.want || (err == nil) != (tt.fail == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), tt.fail) || !strings.Contains(err.Error(), tt.path) || strings.Contains(err.Error(), "pl4nted")) {
			t.Errorf("%s: %v, want %q and the path in it", name, err, tt.fail)
		}
	}
}

// TestASecretGoesToOneReceiver: a key whose receiver its writer may choose takes no
// file of another key, by whatever path, and not the pod's own token.
func TestASecretGoesToOneReceiver(t *testing.T) {
	file, own, other := write(t, "uri", "postgres://owner:pl4nted@db/nv"), write(t, "token", "pl4nted"), write(t, "other", "pl4nted")
	t.Cleanup(config.SetOwnToken(own))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ token, fail string }{
		"a file of its own":  {other, ""},
		"no file":            {"/does/not/exist", ""},
		"that of the store":  {file, "tokenFile: " + file + " is already the secret for key word"},
		"a link to it":       {link, "tokenFile: " + link + " is already the secret for key word"},
		"another path to it": {"/proc/self/root" + file, "is already the secret for key word"},
		"the pod's token":    {own, "tokenFile: " + own + " is already the secret for the API server"},
	} {
		_, err := load(t, "tokenFile = '"+tt.token+"'\n", "--word=${file:"+file+"}")
		if (err == nil) != (tt.fail == "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.fail)
		}
		if err != nil && strings.Contains(err.Error(), "pl4nted") {
			t.Errorf("%s: the error prints the secret: %v", name, err)
		}
	}
	if _, err := load(t, "words = ['${file:"+own+"}']\n"); err == nil || !strings.Contains(err.Error(), "words[0]") {
		t.Errorf("a reference to the pod's token: %v", err)
	}
	_, err := load(t, "words = ['${env:SECRET}']\n", "--word=${env:SECRET}")
	if err == nil || !strings.Contains(err.Error(), "words[0]: ${env:SECRET} is already the secret for key word") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a variable of two keys: %v", err)
	}
}

// TestYAMLReferences: the same rules hold for YAML, and escapes cost no strictness.
func TestYAMLReferences(t *testing.T) {
	t.Setenv("PLANTED", "pl4nted")
	cfg, err := loadFile(t, "c.yaml", "word: ${env:PLANTED}\nname: $${env:PLANTED}\n")
	if err != nil || cfg.Word.Reveal() != "pl4nted" || cfg.Name != "${env:PLANTED}" {
		t.Errorf("%q, %q, %v", cfg.Word.Reveal(), cfg.Name, err)
	}
	for text, want := range map[string]string{
		"labels:\n  a: ${env:PLANTED}\n":     `c.yaml: key "labels.a": ${env:PLANTED}: `,
		"name: ${file:/a\n":                  `c.yaml: key "name": ${file:/a: `,
		"count: ${env:PLANTED}\n":            `c.yaml: key "count": ${env:PLANTED}: `,
		"none:\n- [a, \"${env:PLANTED}\"]\n": `c.yaml: key "none[0][1]": ${env:PLANTED}: `,
		"name: $${env:A}\nnone: 1\n":         `c.yaml: unknown key "none"`,
		"Word: ${env:PLANTED}\nlist: [x":     "c.yaml: ",
	} {
		_, err := loadFile(t, "c.yaml", text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pl4nted") {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
	if _, err := loadFile(t, "c.yaml", "name: ${env:"+strings.Repeat("A\t", 1<<20)+"}\n"); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a long reference: an error of %d bytes", len(err.Error()))
	}
}
