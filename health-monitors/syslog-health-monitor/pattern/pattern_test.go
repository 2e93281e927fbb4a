package pattern

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// some makes a set of rules of one check each, unless they name one.
func some(t testing.TB, rules ...Rule) *Set {
	t.Helper()
	for i := range rules {
		r := Blank()
		r.Name, r.Check, r.Class, r.Pause = fmt.Sprint("r", i), fmt.Sprint("SysLogsX", i), "Node", 0
		given := rules[i]
		r.Match, r.Contains, r.After, r.AfterContains, r.Within = given.Match, given.Contains, given.After, given.AfterContains, given.Within
		r.Window, r.Pause, r.Clears, r.Action, r.Fatal = given.Window, given.Pause, given.Clears, record.ActionNone, given.Fatal
		r.Ignore, r.SinceBoot = given.Ignore, given.SinceBoot
		if given.Count > 0 {
			r.Count = given.Count
		}
		r.Code = given.Code
		if given.Check != "" {
			r.Check = given.Check
		}
		if given.Fatal {
			r.Action = record.ActionRestartBM
		}
		rules[i] = r
	}
	set, problems := Compile(rules)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

func names(found []Match) (out []string) {
	for _, f := range found {
		out = append(out, f.Rule.Name)
	}
	return out
}

func TestTheFirstRuleOfACheckDecides(t *testing.T) {
	set := some(t, Rule{Match: "disk (?P<DISK>\\w+) (?P<what>\\w+)", Contains: "disk "}, Rule{Match: "disk sda", Contains: "disk ", Check: "SysLogsX0"}, Rule{Match: "sda$", Contains: "sda"})
	for line, want := range map[string][]string{
		"disk sda": {"r1"}, "disk sda failed": {"r0"}, "of disk sdb gone sda": nil, "sda": {"r2"}, "disc": nil, "": nil, "d": nil,
		strings.Repeat("x", lineBytes) + "disk sda": nil,
	} {
		if diff := cmp.Diff(want, names(set.Find(line, 0, &Memory{}))); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", line, diff)
		}
		if len(want) > 0 && !set.Speaks(line) {
			t.Errorf("%.40q does not speak", line)
		}
	}
	got := set.Find("disk sda failed", 0, &Memory{})[0]
	if diff := cmp.Diff([][2]string{{"DISK", "sda"}}, got.Entities); diff != "" || got.Metadata["what"] != "failed" {
		t.Errorf("match %+v", got)
	}
}

func TestALineBeforeAnother(t *testing.T) {
	set := some(t, Rule{Match: "poll\\+0x", Contains: "poll", After: "lockup CPU#(?P<cpu>\\d+)", AfterContains: "lockup", Within: 3})
	for name, tt := range map[string]struct {
		lines []string
		want  int
	}{
		"near":              {[]string{"lockup CPU#7", "x", "y", "poll+0x1"}, 1},
		"too far":           {[]string{"lockup CPU#7", "x", "y", "z", "poll+0x1"}, 0},
		"alone":             {[]string{"poll+0x1"}, 0},
		"once":              {[]string{"lockup CPU#7", "poll+0x1", "poll+0x1"}, 1},
		"the other way":     {[]string{"poll+0x1", "lockup CPU#7"}, 0},
		"begun again":       {[]string{"lockup CPU#1", "x", "lockup CPU#7", "x", "y", "poll+0x1"}, 1},
		"something else by": {[]string{"lockup of a door", "poll+0x1"}, 0},
	} {
		var m Memory
		var found []Match
		for _, line := range tt.lines {
			m.Pass(1)
			found = append(found, set.Find(line, 0, &m)...)
		}
		if len(found) != tt.want || tt.want == 1 && found[0].Metadata["cpu"] != "7" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestALineBeforeMakesOthersHarmless: all of those within its lines, and no longer.
func TestALineBeforeMakesOthersHarmless(t *testing.T) {
	set := some(t, Rule{Match: "down", Contains: "down", After: "begins", AfterContains: "begins", Within: 3, Ignore: true, Check: "SysLogsX"},
		Rule{Match: "down", Contains: "down", Check: "SysLogsX"})
	var m Memory
	var got []string
	for _, line := range []string{"down", "begins", "down", "down", "down", "down"} {
		m.Pass(1)
		for _, f := range set.Find(line, 0, &m) {
			got = append(got, f.Rule.Name)
		}
	}
	if diff := cmp.Diff([]string{"r1", "r0", "r0", "r0", "r1"}, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestTheBeginningOfABoot: a rule of it does not match later, nor where the time is not known.
func TestTheBeginningOfABoot(t *testing.T) {
	set := some(t, Rule{Match: "down", Contains: "down", SinceBoot: time.Minute})
	for since, want := range map[time.Duration]int{0: 0, -1: 0, 1: 1, time.Minute: 1, time.Minute + 1: 0} {
		if got := set.Find("down", since, &Memory{}); len(got) != want {
			t.Errorf("%s after the boot: %v", since, got)
		}
	}
}

// TestErrorsOfALineAreCounted: a line may report many.
func TestErrorsOfALineAreCounted(t *testing.T) {
	for lines, want := range map[string]bool{
		"3 errors of a": true, "262 errors of a": true, "99999999999999999999 errors of a": false, "2 errors of a": false, "0 errors of a": false,
		"2 errors of a,1 errors of a": true, "2 errors of a,1 errors of b": false, "1 errors of a,0 errors of a": false,
	} {
		set := some(t, Rule{Match: "(?P<count>\\d+) errors of (?P<X>\\w+)", Contains: " errors of ", Count: 3, Window: time.Minute})
		var m Memory
		var last bool
		for line := range strings.SplitSeq(lines, ",") {
			last = m.Counts(set.Find(line, 0, &m)[0], "", time.Unix(1_800_000_000, 0))
		}
		if last != want {
			t.Errorf("%s: %t", lines, last)
		}
	}
}

func TestCountAndPause(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for name, tt := range map[string]struct {
		rule Rule
		at   []time.Duration
		want string // + for an event, - for none
	}{
		"each":                   {Rule{}, []time.Duration{0, 0, 1}, "+++"},
		"three in ten minutes":   {Rule{Count: 3, Window: 10 * time.Minute}, []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute}, "--+--+"},
		"too slow":               {Rule{Count: 3, Window: 10 * time.Minute}, []time.Duration{0, 6 * time.Minute, 12 * time.Minute, 18 * time.Minute}, "----"},
		"two at the window":      {Rule{Count: 2, Window: 10 * time.Minute}, []time.Duration{0, 10 * time.Minute}, "-+"},
		"two beyond the window":  {Rule{Count: 2, Window: 10 * time.Minute}, []time.Duration{0, 10*time.Minute + time.Second}, "--"},
		"a pause of a minute":    {Rule{Pause: time.Minute}, []time.Duration{0, time.Second, 59 * time.Second, time.Minute, 61 * time.Second}, "+--+-"},
		"count, then pause":      {Rule{Count: 2, Window: time.Hour, Pause: time.Minute}, []time.Duration{0, 1, 2, time.Minute, 2 * time.Minute}, "-+--+"},
		"a clock that goes back": {Rule{Pause: time.Minute}, []time.Duration{time.Hour, 0}, "++"},
	} {
		tt.rule.Match, tt.rule.Contains = "fault (?P<X>\\w+)", "fault"
		set, got := some(t, tt.rule), ""
		var m Memory
		for _, at := range tt.at {
			now := start.Add(at)
			if m.Counts(set.Find("fault a", 0, &m)[0], "", now) {
				got += "+"
			} else {
				got += "-"
			}
			before := m.Clone()
			_ = before.Counts(set.Find("fault b", 0, &before)[0], "", now) // another thing, another count
			_ = before.Counts(set.Find("fault a", 0, &before)[0], "0000:3b:00", now)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestARecoveryEndsAPause(t *testing.T) {
	set := some(t, Rule{Match: "down (?P<X>\\w+)", Contains: "down", Pause: time.Hour, Check: "SysLogsLink"},
		Rule{Match: "up (?P<X>\\w+)", Contains: "up ", Clears: []string{"r0"}, Check: "SysLogsLink"})
	var m Memory
	now := time.Unix(1_800_000_000, 0)
	down := func(thing string) bool { return m.Counts(set.Find("down "+thing, 0, &m)[0], "", now) }
	if !down("a") || !down("b") || down("a") {
		t.Fatal("the pause does not hold")
	}
	set.Cleared(set.Find("up a", 0, &m)[0], "", &m)
	if !down("a") || down("b") {
		t.Error("it is not the recovered thing that is reported again")
	}
}

// TestARecoveryEndsNoOtherPause: neither that of another code of its check, nor that of its
// code in another check.
func TestARecoveryEndsNoOtherPause(t *testing.T) {
	set := some(t, Rule{Match: "link down", Contains: "link", Pause: time.Hour, Check: "SysLogsLink", Code: "down"},
		Rule{Match: "disk down", Contains: "disk", Pause: time.Hour, Check: "SysLogsDisk", Code: "down"},
		Rule{Match: "flaps", Contains: "flaps", Pause: time.Hour, Check: "SysLogsLink", Code: "flaps"},
		Rule{Match: "is up", Contains: "is up", Clears: []string{"down"}, Check: "SysLogsLink"})
	var m Memory
	now := time.Unix(1_800_000_000, 0)
	reported := func(line string) bool { return m.Counts(set.Find(line, 0, &m)[0], "", now) }
	for _, line := range []string{"link down", "disk down", "flaps"} {
		if !reported(line) || reported(line) {
			t.Fatalf("%q: the pause does not hold", line)
		}
	}
	set.Cleared(set.Find("is up", 0, &m)[0], "", &m)
	for line, want := range map[string]bool{"link down": true, "disk down": false, "flaps": false} {
		if got := reported(line); got != want {
			t.Errorf("%q is reported: %v", line, got)
		}
	}
}

// TestMatchContent: groups that matched something, from the line's first byte on; those
// whose names begin with a capital, A to Z, are entities.
func TestMatchContent(t *testing.T) {
	set := some(t, Rule{Match: `(?P<ADAPTER>\w+) fault(?P<ZONE>\w*)(?: of (?P<disk>\w+))?(?: at (?P<ZERO>\w+))?`, Contains: "fault"})
	for line, want := range map[string]struct {
		entities [][2]string
		metadata map[string]string
	}{
		"eth0 fault":            {[][2]string{{"ADAPTER", "eth0"}}, map[string]string{}},
		"a fault7":              {[][2]string{{"ADAPTER", "a"}, {"ZONE", "7"}}, map[string]string{}},
		"eth0 fault of y at z0": {[][2]string{{"ADAPTER", "eth0"}, {"ZERO", "z0"}}, map[string]string{"disk": "y"}},
	} {
		got := set.Find(line, 0, &Memory{})
		if len(got) != 1 || !cmp.Equal(got[0].Entities, want.entities) || !cmp.Equal(got[0].Metadata, want.metadata) {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// TestTheChecksOfASet are each named once, in order.
func TestTheChecksOfASet(t *testing.T) {
	set := some(t, Rule{Match: "b", Contains: "bbb", Check: "SysLogsB"}, Rule{Match: "a", Contains: "aaa", Check: "SysLogsA"}, Rule{Match: "c", Contains: "ccc", Check: "SysLogsB"})
	if diff := cmp.Diff([]string{"SysLogsA", "SysLogsB"}, set.Checks()); diff != "" {
		t.Error(diff)
	}
}

// TestTheOldestIsForgotten, whatever its name; of those of one time the first by name.
func TestTheOldestIsForgotten(t *testing.T) {
	set := some(t, Rule{Match: "fault (?P<X>\\w+)", Contains: "fault", Pause: time.Hour})
	for name, at := range map[string]struct {
		when      func(i int) int64
		forgotten int
	}{
		"the last by name is the oldest":  {func(i int) int64 { return int64(maxSeen - i) }, maxSeen - 1},
		"the first by name is the oldest": {func(i int) int64 { return int64(i) }, 0},
		"all are as old":                  {func(int) int64 { return 0 }, 0},
	} {
		var m Memory
		report := func(i int, second int64) {
			m.Counts(set.Find(fmt.Sprintf("fault %04d", i), 0, &m)[0], "", time.Unix(1_800_000_000+second, 0))
		}
		for i := range maxSeen {
			report(i, at.when(i))
		}
		before := m.Clone()
		report(9999, maxSeen)
		for i := range maxSeen {
			f := set.Find(fmt.Sprintf("fault %04d", i), 0, &before)[0]
			key := about(f.Rule, "", f.Entities)
			if _, kept := m.Seen[key]; kept == (i == at.forgotten) {
				t.Errorf("%s: thing %d is remembered: %v", name, i, kept)
			}
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	set := some(t, Rule{Match: "fault (?P<X>\\w+)", Contains: "fault", Pause: time.Hour})
	var m Memory
	for i := range 3 * maxSeen {
		if !m.Counts(set.Find(fmt.Sprint("fault ", i), 0, &m)[0], "", time.Unix(1_800_000_000+int64(i), 0)) {
			t.Fatalf("thing %d is not reported", i)
		}
	}
	if len(m.Seen) != maxSeen {
		t.Errorf("%d things are remembered", len(m.Seen))
	}
	if got := set.Find("fault "+strings.Repeat("x", 1000), 0, &m)[0].Entities[0][1]; len(got) != valueBytes {
		t.Errorf("a value of %d bytes", len(got))
	}
}

func TestEvents(t *testing.T) {
	set := some(t, Rule{Match: "disk (?P<DISK>\\w+) (?P<what>\\w+)", Contains: "disk ", Fatal: true}, Rule{Match: "ok (?P<DISK>\\w+)", Contains: "ok ", Clears: []string{"r0"}, Check: "SysLogsX0"})
	s := location.Sighting{Node: "n", Boot: "b", Strategy: record.Process}
	e := record.FromProto(set.Find("disk sda failed", 0, &Memory{})[0].Event(location.Device{}, s, "raw"))
	want := record.Event{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "Node", CheckName: "SysLogsX0", Message: "raw", IsFatal: true,
		RecommendedAction: record.ActionRestartBM, ErrorCode: []string{"r0"}, NodeName: "n", ProcessingStrategy: record.Process,
		EntitiesImpacted: []record.Entity{{EntityType: "DISK", EntityValue: "sda"}},
		Metadata:         map[string]string{"bootID": "b", "what": "failed", "pattern": "r0"}, GeneratedTimestamp: e.GeneratedTimestamp,
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	r := record.FromProto(set.Find("ok sda", 0, &Memory{})[0].Recovery(location.Device{}, s, "raw"))
	if !r.IsHealthy || r.IsFatal || r.RecommendedAction != record.ActionNone || !cmp.Equal(r.ErrorCode, []string{"r0"}) || !cmp.Equal(r.EntitiesImpacted, e.EntitiesImpacted) {
		t.Errorf("recovery %+v", r)
	}
}

var seeds = []string{"disk sda failed", "lockup CPU#7", "\x00\xffdisk \xff\xfe", "poll+0x disk a b"}

func checkLine(t *testing.T, raw []byte) {
	set := some(t, Rule{Match: "disk (?P<DISK>\\S+) (?P<what>\\S+)", Contains: "disk "}, Rule{Match: "poll", Contains: "poll", After: "CPU#(?P<cpu>.*)", AfterContains: "CPU", Within: 2})
	var m Memory
	text := kernellog.Clean(raw)
	for range 2 {
		for _, f := range set.Find(text, 0, &m) {
			e := f.Event(location.Device{}, location.Sighting{Node: "n", Strategy: record.Process}, "m")
			if _, err := proto.Marshal(e); err != nil || !set.Speaks(text) {
				t.Errorf("match %+v, error %v", f, err)
			}
			for _, v := range f.Entities {
				if !utf8.ValidString(v[1]) || len(v[1]) > valueBytes {
					t.Errorf("entity %q", v)
				}
			}
		}
	}
}

func TestDamagedLines(t *testing.T) { mutate.Each(t, 1000, seeds, checkLine) }

func FuzzLine(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(checkLine)
}
