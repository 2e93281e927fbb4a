package timeline

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// midnight is the zero of the times in these tests.
var midnight = time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)

func minute(n int) time.Time { return midnight.Add(time.Duration(n) * time.Minute) }

// open is a fault for which the node was marked, changed by the edits.
func open(id string, edits ...func(*record.Record)) record.Record {
	r := record.Record{ID: id, CreatedAt: minute(1), Node: record.NodeIdentity{ProviderID: "m1"}, Event: record.Event{
		ID: id, Agent: "monitor", CheckName: "check", NodeName: "n", IsFatal: true, ProcessingStrategy: record.Process, GeneratedTimestamp: minute(1),
	}}
	marked := minute(1)
	r.Status = record.Status{
		QuarantineVerdict: &record.Verdict{Reason: record.Matched, At: minute(1), Effects: record.Effects{Cordon: true}},
		Session:           "s", NodeQuarantined: record.Quarantined, QuarantineFinishTimestamp: &marked, Faults: []record.Fault{{Key: id}},
	}
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

func taints(effects ...string) (out []record.Taint) {
	for _, e := range effects {
		out = append(out, record.Taint{Key: "k", Effect: e})
	}
	return out
}

// TestStanding: how a node stands, each side of what decides it.
func TestStanding(t *testing.T) {
	node := func(edits ...func(*Node)) *Node {
		n := &Node{Name: "n", Ready: "True", Identity: record.NodeIdentity{ProviderID: "m1"}}
		for _, edit := range edits {
			edit(n)
		}
		return n
	}
	cordoned := func(n *Node) { n.Unschedulable = true }
	tainted := func(n *Node) { n.Taints = taints("NoSchedule") }
	inSession := func(n *Node) { n.Session, n.Unschedulable, n.ManagedCordon = "s", true, true }
	claimed := func(n *Node) { n.Claim = "u1" }
	ours := func(n *Node) { n.Unschedulable, n.ManagedCordon = true, true }
	asks := func(e record.Effects) func(*record.Record) {
		return func(r *record.Record) { r.Status.QuarantineVerdict.Effects = e }
	}
	const unmarked, never = "and has none now", "no rule requests a cordon or a taint that blocks scheduling"
	for _, tt := range []struct {
		name    string
		node    *Node
		records []record.Record
		phase   Phase
		reason  string // a part of it
	}{
		{"an open fault and a Node without its marks", node(), []record.Record{open("r")}, NeedsHuman, unmarked},
		{"an open fault and a Node that is cordoned", node(cordoned), []record.Record{open("r")}, Quarantined, "node-drainer"},
		{"an open fault and a Node that is tainted", node(tainted), []record.Record{open("r")}, Quarantined, "node-drainer"},
		{"an open fault for which the Node was never marked", node(), []record.Record{open("r", func(r *record.Record) {
			r.Status.QuarantineFinishTimestamp, r.Status.NodeQuarantined = nil, record.NotQuarantined
		})}, Quarantined, "fault-quarantine to set the node marks"},
		{"an open fault of the machine before", node(), []record.Record{open("r", func(r *record.Record) { r.Node.ProviderID = "m0" })}, Quarantined, "node-drainer"},
		{"a rule that asks for a cordon", node(inSession), []record.Record{open("r")}, Quarantined, "node-drainer"},
		{"a rule that asks for NoSchedule", node(inSession), []record.Record{open("r", asks(record.Effects{Taints: taints("NoSchedule")}))}, Quarantined, "node-drainer"},
		{"a rule that asks for NoExecute", node(inSession), []record.Record{open("r", asks(record.Effects{Taints: taints("PreferNoSchedule", "NoExecute")}))}, Quarantined, "node-drainer"},
		{"a rule that asks for PreferNoSchedule", node(inSession), []record.Record{open("r", asks(record.Effects{Taints: taints("PreferNoSchedule")}))}, Quarantined, never},
		{"a rule that asks for nothing", node(inSession), []record.Record{open("r", asks(record.Effects{}))}, Quarantined, never},
		{"a drain that failed", node(inSession), []record.Record{open("r", func(r *record.Record) {
			r.Status.UserPodsEvictionStatus = record.EvictionStatus{Status: record.EvictionFailed, Message: "a pod stays"}
		})}, NeedsHuman, "the drain failed: a pod stays"},
		{"a repair that manual intervention required with", node(inSession), []record.Record{open("r", func(r *record.Record) {
			r.Status.Remediation = &record.Remediation{Outcome: record.OutcomeNeedsHuman, Reason: "AttemptsExhausted"}
		})}, NeedsHuman, "AttemptsExhausted"},
		{"a repair that failed", node(inSession), []record.Record{open("r", func(r *record.Record) {
			r.Status.Remediation, r.Status.FaultRemediated = &record.Remediation{Reason: "Unhealthy"}, new(false)
		})}, NeedsHuman, "Unhealthy"},
		{"our cordon and a claim, and no fault", node(ours, claimed), nil, Releasing, "uid u1"},
		{"a claim, and no cordon of ours", node(claimed), nil, InService, ""},
		{"our cordon, and no claim", node(ours), nil, Cordoned, ""},
	} {
		st := standing(observation{tt.node, true}, true, tt.records)
		if st.Phase != tt.phase || !strings.Contains(st.Reason, tt.reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", tt.name, st.Phase, st.Reason, tt.phase, tt.reason)
		}
	}
}

// TestDetailsOfOpenFault: the oldest time of its records, and the first session.
func TestDetailsOfOpenFault(t *testing.T) {
	at := func(n int, session string) record.Record {
		return open("r", func(r *record.Record) { r.CreatedAt, r.Status.Session = minute(n), session })
	}
	st := behind(Standing{}, []record.Record{at(3, ""), at(2, "s2"), at(5, "s5")})
	if !st.Since.Equal(minute(2)) || st.Session != "s2" || len(st.Records) != 3 {
		t.Errorf("since %v, session %q, %d records", st.Since, st.Session, len(st.Records))
	}
	for _, tt := range []struct{ a, b, want time.Time }{
		{minute(1), minute(2), minute(1)}, {minute(2), minute(1), minute(1)}, {time.Time{}, minute(1), minute(1)}, {minute(1), time.Time{}, minute(1)},
	} {
		if got := earlier(tt.a, tt.b); !got.Equal(tt.want) {
			t.Errorf("of %v and %v, %v is earlier", tt.a, tt.b, got)
		}
	}
}

// TestAbsent: only sources that were read can prove that there is no such node.
func TestAbsent(t *testing.T) {
	for _, tt := range []struct {
		name  string
		facts Facts
		want  bool
	}{
		{"both were read", Facts{Store: Source{Read: true}, Cluster: Source{Read: true}}, true},
		{"the store was not", Facts{Cluster: Source{Read: true}}, false},
		{"the API server was not", Facts{Store: Source{Read: true}}, false},
		{"there is a Node", Facts{Store: Source{Read: true}, Cluster: Source{Read: true}, Sighting: &Node{}}, false},
		{"there is a record", Facts{Store: Source{Read: true}, Cluster: Source{Read: true}, Records: []record.Record{open("r")}}, false},
	} {
		if got := tt.facts.Absent(); got != tt.want {
			t.Errorf("%s: absent is %v", tt.name, got)
		}
	}
}

// TestAStayIsOverWithItsLastFault: one that is cleared ends nothing while another is
// open.
func TestAStayIsOverWithItsLastFault(t *testing.T) {
	cleared := func(id string, n int) record.Record {
		return open(id, func(r *record.Record) {
			at := minute(n)
			r.Status.Faults[0].ClearedTimestamp, r.Status.Faults[0].ClearedBy = &at, record.ClearedManual
		})
	}
	for _, tt := range []struct {
		name   string
		faults []record.Record
		ended  time.Time
	}{
		{"both are cleared", []record.Record{cleared("a", 9), cleared("b", 7)}, minute(9)},
		{"the first is open", []record.Record{open("a"), cleared("b", 7)}, time.Time{}},
		{"the second is open", []record.Record{cleared("a", 9), open("b")}, time.Time{}},
	} {
		if s := newBuilder(Facts{}).stay("s", tt.faults); !s.Ended.Equal(tt.ended) {
			t.Errorf("%s: the stay ended %v, want %v", tt.name, s.Ended, tt.ended)
		}
	}
}

// TestNodeShowsQuarantineSession: if the store does not know the session, all faults that
// the Node lists are open.
func TestNodeShowsQuarantineSession(t *testing.T) {
	active := []record.Event{{ID: "r1"}, {ID: "r2"}}
	known, read := []record.Record{open("r1")}, Source{Read: true}
	for _, tt := range []struct {
		name  string
		facts Facts
		want  []string // faults of all stays
	}{
		{"the store was not read", Facts{Sighting: &Node{Session: "s", Active: active}}, []string{"r1", "r2"}},
		{"nor does the Node list any", Facts{Sighting: &Node{Session: "s"}}, []string{"s"}},
		{"the store was restored, and knows another stay", Facts{Store: read, Records: known, Sighting: &Node{Session: "s9", Unknown: []string{"r2"}, Active: active}}, []string{"r1", "r2", "r1"}},
		{"the store knows the stay", Facts{Store: read, Records: known, Sighting: &Node{Session: "s", Unknown: []string{"r2"}, Active: active}}, []string{"r1"}},
	} {
		var got []string
		for _, s := range Assemble(tt.facts).Stays {
			for _, c := range s.Chains {
				if got = append(got, c.Record); !c.Open {
					t.Errorf("%s: %s is not open", tt.name, c.Record)
				}
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: the faults %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestObjectsOfAnEarlierStay: objects are left out where only the Node is known: those of
// another session, and without a session those that ended before its first fault.
func TestObjectsOfAnEarlierStay(t *testing.T) {
	fault := []record.Event{{ID: "r", GeneratedTimestamp: minute(10)}}
	for _, tt := range []struct {
		name     string
		object   Object
		active   []record.Event
		reported bool
	}{
		{"of the same session", Object{Session: "s"}, fault, true},
		{"of the same session, completed before", Object{Session: "s", Completed: minute(9)}, fault, true},
		{"of another session", Object{Session: "s0"}, fault, false},
		{"of no session, under way", Object{}, fault, true},
		{"of no session, completed before the fault", Object{Completed: minute(9)}, fault, false},
		{"of no session, completed with the fault", Object{Completed: minute(10)}, fault, true},
		{"of no session, completed after the fault", Object{Completed: minute(11)}, fault, true},
		{"of no session, completed, and no fault is listed", Object{Completed: minute(9)}, nil, true},
	} {
		f := Facts{Sighting: &Node{Session: "s", Active: tt.active}, Objects: []Object{tt.object}}
		reported := slices.ContainsFunc(shown(f)[0].Chains[0].Steps, func(s Step) bool { return s.Kind == Repair })
		if reported != tt.reported {
			t.Errorf("an object %s is told of: %v", tt.name, reported)
		}
	}
}
