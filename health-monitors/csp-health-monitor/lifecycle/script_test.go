package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// world is a provider, a cluster and the stored documents. Every document goes through
// its stored form after every command, as over a restart.
type world struct {
	now    time.Time
	policy lifecycle.Policy
	known  bool
	nodes  map[string]node
	docs   map[string]maintenance.Event
	mute   bool // the connector takes nothing
	sent   []record.Event
}

type node struct {
	machine string
	ready   bool
	proven  bool // by the provider's name of the machine
	kubelet kubelet.State
}

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// TestLifecycles plays the lives of testdata. A reading is "announce <id> <key>=<value>...",
// what one round of the monitor makes of it is "round"; times are relative to noon.
func TestLifecycles(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		policy := lifecycle.DefaultPolicy()
		policy.Strategy = record.Process
		w := &world{now: start, policy: policy, known: true, nodes: map[string]node{}, docs: map[string]maintenance.Event{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := w.do(t, d)
			w.restart(t)
			return out
		})
		w.check(t)
	})
}

func (w *world) do(t *testing.T, d *datadriven.TestData) string {
	args := map[string]string{}
	for _, a := range d.CmdArgs {
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	switch d.Cmd {
	case "node": // node <name> [machine=] [ready=no] [kubelet=silent|unknown] [proven]; gone
		if _, gone := args["gone"]; gone {
			delete(w.nodes, d.CmdArgs[0].Key)
			return ""
		}
		machine := args["machine"]
		if machine == "" {
			machine = "i-" + d.CmdArgs[0].Key
		}
		_, proven := args["proven"]
		state := map[string]kubelet.State{"": kubelet.Alive, "silent": kubelet.Silent, "unknown": kubelet.Unknown}[args["kubelet"]]
		w.nodes[d.CmdArgs[0].Key] = node{machine, args["ready"] != "no", proven, state}
		return ""
	case "nodes": // nodes unknown, nodes known
		w.known = d.CmdArgs[0].Key == "known"
		return ""
	case "connector":
		w.mute = d.CmdArgs[0].Key == "away"
		return ""
	case "strategy":
		w.policy.Strategy = record.Strategy(d.CmdArgs[0].Key)
		return ""
	case "at":
		w.now = at(t, d.CmdArgs[0].Key)
		return ""
	case "announce":
		return w.announce(t, d.CmdArgs[0].Key, args)
	case "vanish":
		e, change := lifecycle.Vanish(w.docs[d.CmdArgs[0].Key], w.now)
		w.docs[e.EventID] = e
		return fmt.Sprintf("%s %s %s\n", e.EventID, change, e.Status)
	case "round":
		return w.round()
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

// at is noon and so much.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return start.Add(d)
}

func (w *world) announce(t *testing.T, id string, args map[string]string) string {
	machine := args["machine"]
	if machine == "" {
		machine = "i-n1"
	}
	a := announcement.Announcement{
		ID: id, Machine: machine, Code: "REBOOT", State: announcement.State(args["state"]), Text: args["text"],
		Begin: at(t, args["begin"]), End: at(t, args["end"]), Began: at(t, args["began"]), Ended: at(t, args["ended"]), Updated: at(t, args["updated"]),
		Action: protos.RecommendedAction_RESTART_VM,
	}
	if code := args["code"]; code != "" {
		a.Code = code
	}
	_, a.Emergency = args["emergency"]
	_, a.Unplanned = args["unplanned"]
	var before *maintenance.Event
	if e, ok := w.docs[id]; ok {
		before = &e
	}
	place := lifecycle.Origin{CSP: "cloud", Cluster: "c", ResourceType: "instance"}
	node, _ := w.nodeOf(machine)
	e, change := lifecycle.Fold(before, a, place, node, w.now)
	if change == lifecycle.Refused {
		return string(change) + "\n"
	}
	w.docs[id] = e
	return fmt.Sprintf("%s %s %s\n", id, change, e.Status)
}

// nodeOf is the one Node of a machine, or of several the one that is proven.
func (w *world) nodeOf(machine string) (name string, contested bool) {
	var all, proven []string
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if n := w.nodes[name]; n.machine == machine {
			all = append(all, name)
			if n.proven {
				proven = append(proven, name)
			}
		}
	}
	switch {
	case len(all) == 1:
		return all[0], false
	case len(proven) == 1:
		return proven[0], false
	}
	return "", len(all) > 0
}

func (w *world) facts(e maintenance.Event) lifecycle.Facts {
	name, contested := w.nodeOf(e.ResourceID)
	held, there := w.nodes[e.NodeName]
	return lifecycle.Facts{
		Known: w.known, Node: name, Ready: w.nodes[name].ready, Kubelet: w.nodes[name].kubelet, Contested: contested,
		Other: there && held.machine != e.ResourceID,
	}
}

// round decides about every document, and sends what waits.
func (w *world) round() string {
	var out strings.Builder
	for _, id := range slices.Sorted(maps.Keys(w.docs)) {
		e := w.docs[id]
		if e.Finished {
			continue
		}
		v := lifecycle.Decide(e, w.facts(e), w.policy, w.now)
		e = lifecycle.Apply(e, v, w.policy, w.now)
		fmt.Fprintf(&out, "%s: %s (%s)", id, v.Step, v.Reason)
		if e.Waiting != nil && !w.mute {
			event := e.Waiting.Event
			w.sent = append(w.sent, event)
			kind := "fault"
			if event.IsHealthy {
				kind = "healthy"
			}
			fmt.Fprintf(&out, ", sent %s fatal=%v %s %s to %s %q", kind, event.IsFatal, event.RecommendedAction, event.ProcessingStrategy, event.NodeName, event.Message)
			e = lifecycle.Acknowledge(e, w.now)
		}
		fmt.Fprintf(&out, " -> %s", e.Status)
		if e.Finished {
			fmt.Fprintf(&out, ", finished: %s", e.Outcome)
		}
		out.WriteString("\n")
		w.docs[id] = e
	}
	if out.Len() == 0 {
		return "nothing open\n"
	}
	return out.String()
}

func (w *world) restart(t *testing.T) {
	t.Helper()
	for id, e := range w.docs {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var again maintenance.Event
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Fatalf("%s changed over a restart:\n%s", id, diff)
		}
		w.docs[id] = again
	}
}

// check holds for every lifecycle: each id is of one report, a recovery clears its fault
// and no other maintenance's, and nothing is healed that was not a fault before.
func (w *world) check(t *testing.T) {
	t.Helper()
	ids := map[string]bool{}
	open := map[string]record.Event{}
	for _, e := range w.sent {
		if ids[e.ID] {
			t.Errorf("id %s was given twice", e.ID)
		}
		ids[e.ID] = true
		about := e.Metadata["maintenanceEventId"]
		if !e.IsHealthy {
			if e.IsFatal {
				open[about] = e
			}
			continue
		}
		faulty, ok := open[about]
		if !ok {
			t.Errorf("%s was healed and is no fault", about)
		}
		for other, x := range open {
			for _, entry := range fault.Entries(x) {
				if fault.Clears(e, x, entry) != (other == about) {
					t.Errorf("the recovery of %s says %v of %s", about, other != about, other)
				}
			}
		}
		if faulty.ProcessingStrategy == record.Process && e.ProcessingStrategy != record.Process {
			t.Errorf("the recovery of %s is %s", about, e.ProcessingStrategy)
		}
		delete(open, about)
	}
}
