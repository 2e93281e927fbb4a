package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

// load reads a file over the defaults, as the daemon does.
func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte("nodeName = \"n1\"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Default
	set, err := config.Bind(flag.NewFlagSet("t", flag.ContinueOnError), &c)
	if err != nil {
		t.Fatal(err)
	}
	return c, set.Load(path, func(string) (string, bool) { return "", false })
}

func TestCancellations(t *testing.T) {
	const rule = "[[cancellations]]\nonErrorCode = \"31\"\ncancelErrorCodes = [\"13\", \"149.NETIR_LINK_EVT\", \"150.MSE Degraded\"]\n"
	for text, want := range map[string]map[string][]string{
		"":                     {"162": {"163"}},
		"cancellations = []\n": {},
		rule:                   {"31": {"13", "149.NETIR_LINK_EVT", "150.MSE Degraded"}},
	} {
		c, err := load(t, text)
		policy, problem := c.Policy()
		if diff := cmp.Diff(want, policy.Cancels); err != nil || problem != nil || diff != "" {
			t.Errorf("%q: error %v, rules (-want +got):\n%s", text, err, diff)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(rule, "\"31\"", "\"031\"", 1):        "cancellations[0].onErrorCode",
		strings.Replace(rule, "\"31\"", "\" 31\"", 1):        "cancellations[0].onErrorCode",
		strings.Replace(rule, "\"13\"", "\"31\"", 1):         "the same as onErrorCode",
		strings.Replace(rule, "\"13\"", "\"13\", \"13\"", 1): "cancelErrorCodes[1] \"13\" is a duplicate",
		strings.Replace(rule, "\"13\"", "\"13 \"", 1):        "cancelErrorCodes[0] \"13 \" is not an error code",
		rule + rule: "cancellations[1].onErrorCode \"31\" is a duplicate",
		"[[cancellations]]\nonErrorCode = \"31\"\n":       "cancelErrorCodes is empty",
		strings.Replace(rule, "onErrorCode", "onCode", 1): "onCode",
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// TestALogFileIsRefused: the error names the key and what takes its place.
func TestALogFileIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"source = \"file\"\n":    "source (--source) \"file\" is no longer supported",
		"source = \"dmesg\"\n":   "source (--source) is \"dmesg\": must be one of kmsg, journal",
		"logKernelOnly = true\n": "unknown key \"logKernelOnly\"",
		"source = \"journal\"\n": "",
		"source = \"kmsg\"\n":    "",
	} {
		if _, err := load(t, text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestTheCatalogueIsReadWithTheConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.toml")
	if err := os.WriteFile(path, []byte("[[xid]]\ncode = 179\naction = \"RESTART_BM\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load(t, "catalog = '"+path+"'\n")
	policy, problem := c.Policy()
	if err != nil || problem != nil || !policy.Catalogue.XIDs[179].Fatal {
		t.Errorf("errors %v, %v; row %+v", err, problem, policy.Catalogue.XIDs[179])
	}
	if err := os.WriteFile(path, []byte("[[xid]]\ncode = 179\naction = \"REBOOT\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, "catalog = '"+path+"'\n"); err == nil || !strings.Contains(err.Error(), path+": line 3 (key \"action\")") {
		t.Errorf("error %v", err)
	}
	if _, err := load(t, "catalog = '/does/not/exist'\n"); err == nil {
		t.Error("a missing file is no error")
	}
}
