package collector

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFind: beside us, else in the roots of the host, in order.
func TestFind(t *testing.T) {
	one, two, path := t.TempDir(), t.TempDir(), t.TempDir()
	for _, file := range []string{one + "/usr/bin/both", two + "/usr/bin/both", two + "/usr/local/bin/later", two + "/usr/bin/here", path + "/here"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/alternatives/linked", one+"/usr/bin/linked"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]tool{
		"linked": {path: "/usr/bin/linked", root: one},
		"here":   {path: path + "/here"}, "both": {path: "/usr/bin/both", root: one}, "later": {path: "/usr/local/bin/later", root: two}, "nowhere": {},
	} {
		if got, ok := find(name, ":"+path, []string{"/nowhere", one, two}); got != want || ok != (want.path != "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestPathInTool: how a tool in another root sees our paths.
func TestPathInTool(t *testing.T) {
	for _, x := range []struct {
		root, path, want string
		ok               bool
	}{
		{"", "/host", "/host", true}, {"/host", "/host", "/", true}, {"/host/", "/host/var", "/var", true},
		{"/host/run/nvidia/driver", "/host", "", false}, {"/host", "/hostess", "", false},
	} {
		if got, ok := (tool{root: x.root}).pathInTool(x.path); got != x.want || ok != x.ok {
			t.Errorf("%q in %q: %q, %v", x.path, x.root, got, ok)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
	for flag, spoil := range map[string]func(*Config){
		"--since":                     func(c *Config) { c.Since = 0 },
		"--part-timeout":              func(c *Config) { c.PartTimeout = -1 },
		"--timeout":                   func(c *Config) { c.Timeout = 0 },
		"--nvidia-bug-report-timeout": func(c *Config) { c.BugReportTimeout = 0 },
		"--max-part-bytes":            func(c *Config) { c.MaxPart = 1 },
		"--max-total-bytes":           func(c *Config) { c.MaxTotal = 1 << 20 },
		"--work-dir":                  func(c *Config) { c.WorkDir = "" },
		"--units":                     func(c *Config) { c.Units = []string{"--vacuum-size=1"} },
		"--files":                     func(c *Config) { c.Files = []string{"../etc/shadow"} },
	} {
		bad := Default()
		spoil(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	many := Default()
	many.Units = make([]string, maxUnits+1)
	if err := many.Validate(); err == nil || !strings.Contains(err.Error(), "at most 32 are allowed") {
		t.Errorf("too many units: %v", err)
	}
}
