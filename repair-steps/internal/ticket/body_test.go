package ticket

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

const nasty = "a \"quoted\" \\ text\n{{ .node }} </script> \u2028 \x01 }"

func TestRender(t *testing.T) {
	facts := map[string]any{"node": "gpu-1", "action": "RESTART_VM", "fault": map[string]any{"message": nasty}, "steps": map[string]any{"validate": "Failed"}}
	for name, x := range map[string]struct {
		how     string
		limit   int
		want    string // JSON
		message string
	}{
		"built in": {builtIn, 4096, `{"summary": "GPU node gpu-1: repair for RESTART_VM failed", "node": "gpu-1", "action": "RESTART_VM", "run": null,
			"fault": {"message": "a \"quoted\" \\ text\n{{ .node }} </script> \u2028 \u0001 }"}, "steps": {"validate": "Failed"}, "messages": null, "validation": null, "logs": null}`, ""},
		"another":              {`{"fields": {"labels": ["gpu", {{ toJson .node }}]}}`, 100, `{"fields": {"labels": ["gpu", "gpu-1"]}}`, ""},
		"a value without JSON": {`{"text": "{{ .fault.message }}"}`, 4096, "", "toJson"},
		"no JSON":              {`title: {{ .node }}`, 4096, "", "does not produce JSON"},
		"nothing":              {``, 4096, "", "does not produce JSON"},
		"two values":           {`{} {}`, 4096, "", "does not produce JSON"},
		"too large":            {`[{{ toJson .fault }}]`, 20, "", "--max-body-bytes"},
		"no template":          {`{{ .node`, 4096, "", "--template"},
		"no such function":     {`{{ env "HOME" }}`, 4096, "", "--template"},
		"of a wrong kind":      {`{{ .node.name.first }}`, 4096, "", "creating the ticket"},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := render(x.how, facts, x.limit)
			if x.message != "" {
				if err == nil || !strings.Contains(err.Error(), x.message) {
					t.Errorf("%s, %v; want %q", body, err, x.message)
				}
				return
			}
			var got, want any
			if err != nil || json.Unmarshal(body, &got) != nil || json.Unmarshal([]byte(x.want), &want) != nil {
				t.Fatalf("%s, %v", body, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestWrite: the files, and that the same ones make the same body.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	facts := file("facts", `{"node":"gpu-1","count":12345678901234567890,"b":1,"a":2}`)
	how := file("template", `{"all": {{ toJson . }}}`)
	want := `{"all":{"a":2,"b":1,"count":12345678901234567890,"node":"gpu-1"}}`
	for range 5 {
		if got, err := Write(Config{Facts: facts, Template: how, MaxBody: 1000}); string(got) != want || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
	plain := file("plain", `{"a": "${file:/etc/hostname}", "b": {{ toJson .b }}}`)
	if got, err := Write(Config{Facts: file("references", `{"b": "${env:PATH}"}`), Template: plain, MaxBody: 1000}); string(got) != `{"a":"${file:/etc/hostname}","b":"${env:PATH}"}` || err != nil {
		t.Errorf("references in facts and template are resolved: %s, %v", got, err)
	}
	for name, x := range map[string]struct{ facts, how, message string }{
		"no facts":        {"/nowhere", how, "--facts"},
		"facts in a list": {file("list", "[]"), how, "not a JSON object"},
		"facts twice":     {file("twice", "{} {}"), how, "unexpected data after the object"},
		"facts too large": {file("large", "{}"+strings.Repeat(" ", most)), how, "exceeds"},
		"no template":     {facts, "/nowhere", "--template"},
	} {
		if _, err := Write(Config{Facts: x.facts, Template: x.how, MaxBody: 1000}); err == nil || !strings.Contains(err.Error(), x.message) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRender: a text stays a text, whatever it contains, in the built-in template.
func FuzzRender(f *testing.F) {
	f.Add(nasty)
	f.Add(`","admin":true,"x":"`)
	f.Fuzz(func(t *testing.T, text string) {
		body, err := render(builtIn, map[string]any{"node": text, "fault": text}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != 9 || utf8.ValidString(text) && got["node"] != text {
			t.Errorf("%q became %v", text, got)
		}
	})
}

func TestValidate(t *testing.T) {
	good := Default()
	good.URL, good.Key = config.NewSecret("https://tickets.example.com/api"), "run/step"
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for flag, spoil := range map[string]func(*Config){
		"--url":                func(c *Config) { c.URL = config.Secret{} },
		"--facts":              func(c *Config) { c.Facts = "" },
		"--max-body-bytes":     func(c *Config) { c.MaxBody = maxBody + 1 },
		"--idempotency-header": func(c *Config) { c.Header = "authorization" },
		"--idempotency-key":    func(c *Config) { c.Key = "two words" },
		"--on-conflict":        func(c *Config) { c.Conflict = "maybe" },
		"--token-file":         func(c *Config) { c.URL, c.Sending.TokenFile = config.NewSecret("http://example.com"), "token" },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
