package catalogue

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/pattern"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sxid"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// load reads a file of that text.
func load(t *testing.T, text string) (Catalogue, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	return c, err
}

func rule(t *testing.T, c Catalogue, name string) pattern.Rule {
	t.Helper()
	for _, r := range c.Patterns.Rules() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no pattern %s", name)
	return pattern.Rule{}
}

// TestBuiltinPatternsObserveUnlessTheyAreOfTheGPU: nothing outside of the GPU's
// driver may act by itself.
func TestBuiltinPatternsObserveUnlessTheyAreOfTheGPU(t *testing.T) {
	c, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Patterns.Rules() {
		ofGPU := r.Check == "SysLogsGPUDriverError" || r.Check == "SysLogsGPUFallenOff"
		if r.Fatal && !ofGPU && r.Strategy != record.PersistOnly {
			t.Errorf("%s is fatal and acts", r.Name)
		}
		if r.Check == "SysLogsKernelError" && !r.Ignore && r.Strategy != record.PersistOnly {
			t.Errorf("%s acts", r.Name)
		}
		if ofGPU && !r.Ignore && (!r.Fatal || r.Strategy != "" || r.Class != "GPU") {
			t.Errorf("%s of a GPU: %+v", r.Name, r)
		}
	}
}

// TestPageNamesPersistOnlyChecks: docs/reference/processing-strategy.md lists the patterns that
// do not act under PROCESS, those of a check that never acts by the check.
func TestPageNamesPersistOnlyChecks(t *testing.T) {
	want := map[string]bool{"SysLogsGap": true, "processingStrategy": true, "SysLogsNICDriverError": true}
	for _, r := range Builtin().Patterns.Rules() {
		switch {
		case r.Strategy != record.PersistOnly:
		case r.Check == "SysLogsKernelError": // no pattern of it acts, see above
			want[r.Check] = true
		default:
			want[r.Name] = true
		}
	}
	page, err := os.ReadFile("../../../docs/reference/processing-strategy.md")
	if err != nil {
		t.Fatal(err)
	}
	got, name := map[string]bool{}, regexp.MustCompile("`(\\w+)`")
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| syslog-health-monitor | ") {
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				got[m[1]] = true
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names in docs/reference/processing-strategy.md (-want +got):\n%s", diff)
	}
}

// TestNamesOfProcessesAreCut: the kernel's name of a process has 15 characters, so that a
// longer one in a pattern could never match.
func TestNamesOfProcessesAreCut(t *testing.T) {
	const nameBytes = 15 // TASK_COMM_LEN without its end
	set := Builtin().Patterns
	for _, program := range []string{
		"kubelet", "containerd", "containerd-shim-runc-v2", "dockerd", "crio", "systemd", "systemd-journald", "systemd-networkd", "sshd",
		"dbus-daemon", "nv-hostengine", "nvidia-persistenced", "nvidia-device-plugin", "nv-fabricmanager", "nvlsm", "node-connector",
		"syslog-health-monitor",
	} {
		line := "Out of memory: Killed process 7 (" + program[:min(len(program), nameBytes)] + ") total-vm:1kB"
		if found := set.Find(line, 0, &pattern.Memory{}); len(found) != 1 || found[0].Rule.Name != "oom_system_process" {
			t.Errorf("%q matches %v", line, found)
		}
	}
	alternative := regexp.MustCompile(`[(|]([a-z][\w-]+)`)
	for _, m := range alternative.FindAllStringSubmatch(rule(t, Builtin(), "oom_system_process").Match, -1) {
		if len(m[1]) > nameBytes {
			t.Errorf("no process can be called %s", m[1])
		}
	}
}

// TestNoBuiltinPatternBeginsWithAWildcard: what stands before its words would be lost, and
// could be a program's.
func TestNoBuiltinPatternBeginsWithAWildcard(t *testing.T) {
	for _, r := range Builtin().Patterns.Rules() {
		for _, expression := range []string{r.Match, r.After} {
			if at := strings.Index(expression, ".*"); at >= 0 && at < strings.Index(expression, " ") {
				t.Errorf("%s: %s", r.Name, expression)
			}
		}
		if found := Builtin().Patterns.Find("app[7]: "+r.Contains, 0, &pattern.Memory{}); len(found) > 0 {
			t.Errorf("%s matches words of a program", r.Name)
		}
	}
}

func TestAFileIsMergedOverTheBuiltinCatalogue(t *testing.T) {
	c, err := load(t, `
[[xid]]
code = 173
action = "RESTART_BM"
note = "our vendor says so"

[[xid]]
code = 154
action = "NONE"

[[sxid]]
code = 28006
class = "fatal"
action = "RESTART_VM"
name = "MC TS crumbstore MCTO"

[[pattern]]
name = "hung_task"
processingStrategy = "PROCESS"
count = 3
window = "1h"

[[pattern]]
name = "rcu_stall"
enabled = false

[[pattern]]
name = "lustre_evicted"
check = "SysLogsStorageError"
componentClass = "Node"
contains = "was evicted by"
match = 'LustreError: .*: (?P<OST>\S+): This client was evicted by'
fatal = true
action = "CONTACT_SUPPORT"
rebootCures = false
`)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := xid.Parse("NVRM: Xid (PCI:0000:3b:00): 173, x")
	if got, want := c.XIDs.Evaluate(f, ""), (xid.Evaluation{Action: record.ActionRestartBM, Fatal: true, RebootCures: true, Policy: xid.Configured}); got != want {
		t.Errorf("xid 173: %+v", got)
	}
	f, _ = xid.Parse("NVRM: Xid (PCI:0000:3b:00): 154, from 0x0 (None) to 0x2 (x)")
	if got := c.XIDs.Evaluate(f, ""); got.Fatal || got.Policy != xid.Configured {
		t.Errorf("xid 154: %+v", got)
	}
	s, _ := c.SXIDs.Parse("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Fatal, Link 46 x")
	if got := c.SXIDs.Evaluate(s); got.Action != record.ActionRestartVM || got.Policy != sxid.ByClass {
		t.Errorf("sxid 28006: %+v", got)
	}
	if r := rule(t, c, "hung_task"); r.Strategy != record.Process || r.Count != 3 || r.Window != time.Hour || r.Pause != 10*time.Minute || r.Check != "SysLogsKernelError" {
		t.Errorf("hung_task: %+v", r)
	}
	if len(c.Patterns.Find("rcu: INFO: rcu_sched self-detected stall on CPU", 0, &pattern.Memory{})) != 0 {
		t.Error("a pattern that is switched off matches")
	}
	got := c.Patterns.Find("LustreError: 11-0: scratch-OST0001-osc: This client was evicted by scratch", 0, &pattern.Memory{})
	if len(got) != 1 || got[0].Rule.RebootCures || !cmp.Equal(got[0].Entities, [][2]string{{"OST", "scratch-OST0001-osc"}}) {
		t.Errorf("matches %+v", got)
	}
	if _, changed := xid.Builtin[173]; changed && xid.Builtin[173].Policy == xid.Configured || xid.Builtin[154].Policy == xid.Configured {
		t.Error("the built-in catalogue was changed")
	}
}

// TestInvalidKeysAreNamed: file, line and key.
func TestInvalidKeysAreNamed(t *testing.T) {
	const good = "[[pattern]]\nname = \"x\"\ncheck = \"SysLogsX\"\ncomponentClass = \"Node\"\ncontains = \"abc\"\nmatch = 'abc'\n"
	for name, tt := range map[string]struct{ text, want string }{
		"reference":           {strings.Replace(good, "'abc'", "'${env:HOME}'", 1), `c.toml: key "pattern[0].match": ${env:HOME}: a reference is allowed only in keys of type secret`},
		"syntax":              {"[[xid]]\ncode = \n", `c.toml: line 2 (key "xid.code")`},
		"wrong type":          {"[[xid]]\ncode = 173\naction = \"NONE\"\n\n[[xid]]\ncode = \"x\"\n", `c.toml: line 6 (key "xid.code")`},
		"unknown action":      {"[[xid]]\ncode = 173\naction = \"REBOOT\"\n", `c.toml: line 3 (key "action")`},
		"no code":             {"[[xid]]\naction = \"NONE\"\n", `c.toml: line 1 (key "code")`},
		"the first of two":    {"[[xid]]\naction = \"NONE\"\n[[xid]]\ncode = 1\naction = \"NONE\"\n", `c.toml: line 1 (key "code"): 0 is not a code`},
		"the second of two":   {"[[xid]]\ncode = 1\naction = \"NONE\"\n[[xid]]\naction = \"NONE\"\n", `c.toml: line 4 (key "code"): 0 is not a code`},
		"key of no table":     {"code = 7\n[[xid]]\naction = \"NONE\"\n", `c.toml: line 2 (key "code"): 0 is not a code`},
		"table in one line":   {"xid = [{action = \"NONE\"}]\n[[sxid]]\ncode = 1\naction = \"NONE\"\nclass = \"bare\"\n", `c.toml: line 0 (key "code"): 0 is not a code`},
		"twice":               {"[[xid]]\ncode = 1\naction = \"NONE\"\n[[xid]]\ncode = 1\naction = \"NONE\"\n", `c.toml: line 5 (key "code"): 1 is a duplicate`},
		"fatal none":          {"[[xid]]\ncode = 1\naction = \"NONE\"\nfatal = true\n", `c.toml: line 4 (key "fatal")`},
		"unknown key":         {"[[xid]]\ncode = 1\naction = \"NONE\"\nfatl = true\n", `c.toml: line 4 (key "fatl"): unknown key`},
		"unknown table":       {"\n[[xids]]\ncode = 1\n", `c.toml: line 3 (key "code"): unknown key`},
		"sxid twice":          {"[[sxid]]\ncode = 1\naction = \"NONE\"\nclass = \"bare\"\n[[sxid]]\ncode = 1\naction = \"NONE\"\nclass = \"bare\"\n", `c.toml: line 6 (key "code"): 1 is a duplicate`},
		"class of an sxid":    {"[[sxid]]\ncode = 1\naction = \"NONE\"\nclass = \"bad\"\n", `c.toml: line 4 (key "class")`},
		"action of a class":   {"[[sxid]]\ncode = 1\naction = \"NONE\"\nclass = \"fatal\"\n", `c.toml: line 3 (key "action")`},
		"expression":          {strings.Replace(good, "match = 'abc'", "match = '(abc'", 1), `c.toml: line 6 (key "match"): pattern x: error parsing regexp`},
		"look-behind":         {strings.Replace(good, "match = 'abc'", "match = '(?<!x)abc'", 1), `(key "match")`},
		"matches all":         {strings.Replace(good, "match = 'abc'", "match = '.*'", 1), `c.toml: line 6 (key "match"): pattern x: matches an empty line`},
		"no text":             {strings.Replace(good, "contains = \"abc\"\n", "", 1), `c.toml: line 1 (key "contains"): pattern x`},
		"another's check":     {strings.Replace(good, "SysLogsX", "GpuMemWatch", 1), `c.toml: line 3 (key "check")`},
		"check of XIDs":       {strings.Replace(good, "SysLogsX", "SysLogsXIDError", 1), `c.toml: line 3 (key "check")`},
		"no name":             {"[[pattern]]\ncheck = \"SysLogsX\"\n", `c.toml: line 1 (key "name"): a pattern requires a name`},
		"name of a number":    {"[[pattern]]\nname = 7\n", `c.toml: line 2 (key "name"): a pattern requires a name`},
		"name twice":          {good + good, `c.toml: line 8 (key "name"): "x" is a duplicate`},
		"unknown pattern key": {good + "matches = 'x'\n", `c.toml: line 7 (key "matches"): unknown key`},
		"count alone":         {good + "count = 3\n", `(key "window")`},
		"type in a pattern":   {good + "count = 'three'\n", `c.toml: line 7 (key "count")`},
		"window":              {good + "window = 'soon'\n", `c.toml: line 7`},
		"fatal without act":   {good + "fatal = true\n", `(key "action"): pattern x: a fatal fault requires an action`},
		"strategy":            {good + "processingStrategy = \"MAYBE\"\n", `c.toml: line 7 (key "processingStrategy")`},
		"fatal recovery":      {good + "fatal = true\naction = \"RESTART_BM\"\nclears = [\"y\"]\n", `c.toml: line 9 (key "clears")`},
		"built-in spoilt":     {"[[pattern]]\nname = \"hung_task\"\nmatch = '('\n", `c.toml: line 3 (key "match"): pattern hung_task`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant %s in it", err, tt.want)
			}
		})
	}
	if _, err := load(t, good); err != nil {
		t.Error(err)
	}
}

// TestCodesAreBounded: from 1 to 2^30, of both kinds; two of them stand beside each other.
func TestCodesAreBounded(t *testing.T) {
	for kind, rest := range map[string]string{"xid": "action = \"NONE\"\n", "sxid": "action = \"NONE\"\nclass = \"bare\"\n"} {
		for code, good := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 1<<30 - 1: true, 1 << 30: true, 1<<30 + 1: false} {
			_, err := load(t, fmt.Sprintf("[[%s]]\ncode = %d\n%s[[%s]]\ncode = 7\n%s", kind, code, rest, kind, rest))
			want := fmt.Sprintf("c.toml: line 2 (key \"code\"): %d is not a code", code)
			if good && err != nil || !good && (err == nil || !strings.HasSuffix(err.Error(), want)) {
				t.Errorf("%s %d: %v", kind, code, err)
			}
		}
	}
}

// TestWithoutAFile: what is built in is all there is. A path that cannot be read is an error,
// and no reason to go on without what the operator wrote.
func TestWithoutAFile(t *testing.T) {
	got, err := Load("")
	if want := Builtin(); err != nil || len(got.XIDs) != len(want.XIDs) || len(got.SXIDs) != len(want.SXIDs) || len(want.SXIDs) == 0 ||
		len(got.Patterns.Rules()) != len(want.Patterns.Rules()) {
		t.Errorf("%d XIDs, %d SXIDs: %v", len(got.XIDs), len(got.SXIDs), err)
	}
	for name, path := range map[string]string{"a folder": t.TempDir(), "no file": filepath.Join(t.TempDir(), "c.toml")} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "reading the catalog: ") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	var many strings.Builder
	for i := range pattern.MaxRules {
		many.WriteString("[[pattern]]\nname = \"x" + strings.Repeat("y", i%50) + strings.Repeat("z", i/50) + "\"\ncheck = \"SysLogsX\"\ncomponentClass = \"Node\"\ncontains = \"abc\"\nmatch = 'abc'\n")
	}
	if _, err := load(t, many.String()); err == nil || !strings.Contains(err.Error(), "more than 256 patterns") {
		t.Errorf("error %v", err)
	}
	if _, err := load(t, strings.Repeat("#", maxBytes)); err != nil {
		t.Errorf("the longest file: %v", err)
	}
	if _, err := load(t, strings.Repeat("#", maxBytes+1)); err == nil || !strings.Contains(err.Error(), "c.toml has more than 1048576 bytes") {
		t.Errorf("a longer file: %v", err)
	}
}

var seeds = []string{
	"[[xid]]\ncode = 173\naction = \"RESTART_BM\"\n", "[[sxid]]\ncode = 1\nclass = \"bare\"\naction = \"NONE\"\n",
	"[[pattern]]\nname = \"hung_task\"\ncount = 3\nwindow = \"1h\"\n", "[[pattern]]\nname = \"x\"\nmatch = '(?P<A>a+)'\ncontains = \"aaa\"\n",
}

func checkFile(t *testing.T, raw []byte) {
	c, err := parse("f", raw)
	if err == nil && (c.Patterns == nil || len(c.XIDs) < len(xid.Builtin)) {
		t.Errorf("catalogue %+v", c)
	}
}

func TestDamagedFiles(t *testing.T) { mutate.Each(t, 300, seeds, checkFile) }

func FuzzFile(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(checkFile)
}
