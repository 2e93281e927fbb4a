package timeline_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// args are one command's arguments.
type args struct {
	t *testing.T
	*datadriven.TestData
}

func (a args) has(key string) bool {
	for _, x := range a.CmdArgs {
		if x.Key == key {
			return true
		}
	}
	return false
}

// text is a value; "_" stands for a space.
func (a args) text(key string) string {
	for _, x := range a.CmdArgs {
		if x.Key == key && len(x.Vals) > 0 {
			return strings.ReplaceAll(x.Vals[0], "_", " ")
		}
	}
	return ""
}

func (a args) or(key, otherwise string) string {
	for _, x := range a.CmdArgs {
		if x.Key == key && len(x.Vals) > 0 {
			return x.Vals[0]
		}
	}
	return otherwise
}

func (a args) number(key string) int {
	n, err := strconv.Atoi(a.or(key, "0"))
	if err != nil {
		a.t.Fatalf("%s: %v", a.Pos, err)
	}
	return n
}

func (a args) time(key string) time.Time {
	if text := a.text(key); text != "" {
		return clockOf(a.t, text)
	}
	return time.Time{}
}

// clockOf reads hours:minutes:seconds.fraction of the night.
func clockOf(t *testing.T, text string) time.Time {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		t.Fatalf("time %q is not hours:minutes:seconds", text)
	}
	d, err := time.ParseDuration(parts[0] + "h" + parts[1] + "m" + parts[2] + "s")
	if err != nil {
		t.Fatal(err)
	}
	return night.Add(d)
}

func (a args) node() timeline.Node {
	n := timeline.Node{
		Name: a.or("name", "gpu-1"), Ready: a.or("ready", "True"), Unschedulable: a.has("cordoned"), ManagedCordon: a.has("ours"),
		Session: a.or("session", ""), Claim: a.or("claim", ""), State: nodemark.State(a.or("state", "")), OptedOut: a.has("optedout"),
	}
	if ids := a.or("unknown", ""); ids != "" {
		n.Unknown = []string{ids}
	}
	n.Identity.BootID, n.Identity.ProviderID = a.or("boot", "b1"), a.or("machine", "m1")
	n.Created, n.Heartbeat = a.time("created"), a.time("heartbeat")
	if since := a.text("lemon"); since == "by hand" {
		n.RepeatOffender = &nodemark.RepeatOffender{}
	} else if since != "" { // its repairs: lemon= repairs=(at session...)
		n.RepeatOffender = &nodemark.RepeatOffender{Since: clockOf(a.t, since), Window: "720h0m0s", RequiresRelease: a.text("kept")}
		for i, at := range strings.Fields(a.text("repairs")) {
			n.RepeatOffender.Repairs = append(n.RepeatOffender.Repairs, nodemark.CountedRepair{Session: "s" + strconv.Itoa(i), At: clockOf(a.t, at)})
		}
	}
	if taint := a.text("taint"); taint != "" {
		n.Taints = []record.Taint{{Key: taint, Effect: "NoSchedule"}}
	}
	if check := a.text("condition"); check != "" {
		n.Conditions = []timeline.Condition{{Type: check, Status: "True", Message: a.Input}}
	}
	if id := a.or("call", ""); id != "" {
		n.Calls = []nodemark.Call{{Record: id, Action: "REPLACE_VM", Reason: "AttemptsExhausted", Message: a.Input}}
	}
	if id := a.or("active", ""); id != "" {
		n.Active = []record.Event{{
			ID: id, Agent: "syslog-health-monitor", CheckName: "SysLogsXIDError", ErrorCode: []string{"79"}, IsFatal: true,
			RecommendedAction: record.ActionRestartBM, Message: a.Input, GeneratedTimestamp: a.time("since"),
		}}
	}
	return n
}

// object's input has a condition per line: time type status message.
func (a args) object() timeline.Object {
	o := timeline.Object{Kind: "RebootNode", Name: a.or("name", ""), UID: a.or("uid", ""), Node: "gpu-1", Session: a.or("session", ""), CreatedAt: a.time("at")}
	for line := range strings.Lines(a.Input) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 4)
		o.Status = append(o.Status, timeline.Condition{Since: clockOf(a.t, f[0]), Type: f[1], Status: f[2], Message: strings.Join(f[3:], " ")})
	}
	return o
}

// check's input is its reason, then a line per node: its name, when it recovered or -,
// and kind/name began given-up of each remediation; after # why it waits.
func (a args) check() timeline.Check {
	reason, nodes, _ := strings.Cut(a.Input, "\n")
	c := timeline.Check{Name: a.text("name"), Phase: a.text("phase"), Reason: reason, Storm: a.time("storm")}
	for line := range strings.Lines(nodes) {
		line, why, _ := strings.Cut(line, "#")
		f := strings.Fields(line)
		p := timeline.MonitoredNode{Node: f[0], Waiting: strings.TrimSpace(why)}
		if f[1] != "-" {
			p.Recovered = clockOf(a.t, f[1])
		}
		for f = f[2:]; len(f) > 0; f = f[3:] {
			kind, name, _ := strings.Cut(f[0], "/")
			t := timeline.Try{Kind: kind, Name: name, Began: clockOf(a.t, f[1])}
			if f[2] != "-" {
				t.Abandoned = clockOf(a.t, f[2])
			}
			p.Tries = append(p.Tries, t)
		}
		c.Patients = append(c.Patients, p)
	}
	return c
}
