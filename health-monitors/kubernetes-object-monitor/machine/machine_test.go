package machine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// trackerRun is one tracker with predictable ids; every command is followed by a restart,
// which must change nothing.
type trackerRun struct {
	tracker *Tracker
	ids     int
}

func (tr *trackerRun) id() (string, error) { tr.ids++; return fmt.Sprintf("id-%d", tr.ids), nil }

func (tr *trackerRun) restart(t *testing.T) {
	data, err := tr.tracker.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range tr.tracker.Waiting() {
		if !proto.Equal(w.Event, again.Waiting()[i].Event) {
			t.Fatalf("event %d changed over a restart", w.Seq)
		}
	}
	tr.tracker = again
}

func TestTransitions(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		l := &trackerRun{tracker: New("epoch")}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			defer l.restart(t)
			switch d.Cmd {
			case "see":
				return l.see(t, d)
			case "open":
				return l.open()
			case "reject":
				return l.reject(t, d)
			case "acknowledge":
				n := len(l.tracker.Waiting())
				for _, w := range l.tracker.Waiting() {
					l.tracker.Remove(w.Seq)
				}
				return fmt.Sprintf("%d events\n", n)
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func (tr *trackerRun) see(t *testing.T, d *datadriven.TestData) string {
	s := EvaluationResult{Key: Key{"P", "v1/Pod", "ns/a"}, Fault: Fault{ComponentClass: "GPU", Strategy: record.Process},
		Wording: Wording{IsFatal: true, Message: "broken", Action: record.ActionRestartVM}, At: time.Unix(1000, 0)}
	s.Observation = Observation(d.CmdArgs[0].Key)
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "node":
			s.Fault.Node = a.Vals[0]
		case "object":
			s.Key.Object = a.Vals[0]
		case "codes":
			s.Fault.Codes = a.Vals
		case "class":
			s.Fault.ComponentClass = a.Vals[0]
		case "held":
			s.Delayed = true
		case "strategy":
			s.Fault.Strategy = record.Strategy(a.Vals[0])
		default:
			t.Fatalf("unknown argument %s", a.Key)
		}
	}
	before := len(tr.tracker.Waiting())
	decision, err := tr.tracker.Observe(s, tr.id)
	out := string(decision.Reason) + "\n"
	if err != nil {
		out += err.Error() + "\n"
	}
	for _, w := range tr.tracker.Waiting()[before:] {
		e := record.FromProto(w.Event)
		what := "unhealthy"
		if e.IsHealthy {
			what = "healthy"
		}
		out += fmt.Sprintf("%d %s node=%s class=%s entity=%s codes=[%s] fatal=%v action=%s %s %s\n", w.Seq, what, e.NodeName, e.ComponentClass,
			e.EntitiesImpacted[0].EntityValue, strings.Join(e.ErrorCode, " "), e.IsFatal, e.RecommendedAction, e.ProcessingStrategy, e.ID)
	}
	return out
}

// reject has events rejected, all that wait if none are named.
func (tr *trackerRun) reject(t *testing.T, d *datadriven.TestData) (out string) {
	t.Helper()
	var seqs []uint64
	for _, a := range d.CmdArgs {
		seq, err := strconv.ParseUint(a.Key, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	for _, w := range tr.tracker.Waiting() {
		if len(d.CmdArgs) == 0 {
			seqs = append(seqs, w.Seq)
		}
	}
	for _, seq := range seqs {
		of, known := tr.tracker.Reject(seq)
		out += fmt.Sprintf("%d %s healthy=%v known=%v\n", seq, of.Key.Object, of.IsHealthy, known)
	}
	return out + tr.open()
}

func (tr *trackerRun) open() string {
	out := ""
	for _, k := range tr.tracker.Open() {
		f, _ := tr.tracker.Fault(k)
		out += strings.TrimSuffix(fmt.Sprintf("%s %s on %s %s", k.Policy, k.Object, f.Node, strings.Join(f.Codes, ",")), " ") + "\n"
	}
	return out + fmt.Sprintf("%d wait\n", len(tr.tracker.Waiting()))
}

// TestARestoredStateCountsInAnotherRun: two leaders that begin with the same state,
// because it was restored from a backup, give the same numbers in different runs,
// both behind the run before.
func TestARestoredStateCountsInAnotherRun(t *testing.T) {
	l := &trackerRun{tracker: New("epoch")}
	see := func(object string) (seq uint64, run, before string) {
		s := EvaluationResult{Key: Key{"P", "v1/Pod", object}, Observation: Matched, Fault: Fault{ComponentClass: "GPU", Strategy: record.Process, Node: "n"}}
		if _, err := l.tracker.Observe(s, l.id); err != nil {
			t.Fatal(err)
		}
		w := l.tracker.Waiting()
		run, before = record.FromProto(w[len(w)-1].Event).Runs()
		return w[len(w)-1].Seq, run, before
	}
	_, first, _ := see("a")
	backup := l.tracker
	l.restart(t)
	seq, lost, before := see("b")
	l.tracker = backup
	l.restart(t)
	again, run, behind := see("c")
	if seq != again || run == lost || before != first || behind != first {
		t.Errorf("%d in run %q behind %q, then %d in run %q behind %q", seq, lost, before, again, run, behind)
	}
}

func TestTheStateIsBoundedAndRecoveriesAreNot(t *testing.T) {
	l := &trackerRun{tracker: New("epoch")}
	seen := func(i int, s Observation) EvaluationResult {
		return EvaluationResult{Key: Key{"GPUNodeNotReady", "v1/Node", fmt.Sprintf("node-%05d-%x", i, i*7919%65521)}, Observation: s,
			Fault: Fault{Node: fmt.Sprintf("node-%05d-%x", i, i*7919%65521), ComponentClass: "Node", Strategy: record.Process}, At: time.Unix(int64(i), 0)}
	}
	var err error
	n := 0
	newID := func() (string, error) { id, err := uuid.NewV7(); return id.String(), err }
	for ; err == nil; n++ {
		_, err = l.tracker.Observe(seen(n, Matched), newID)
	}
	if n != MaxEntries/2+1 {
		t.Errorf("%d faults were begun", n-1)
	}
	for i := range n - 1 {
		if _, err := l.tracker.Observe(seen(i, Gone), newID); err != nil {
			t.Fatal(err)
		}
	}
	data, err := l.tracker.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d events take %d bytes", len(l.tracker.Waiting()), len(data)); len(data) > 900<<10 {
		t.Errorf("%d bytes do not fit into a ConfigMap", len(data))
	}
}

func TestADamagedStateIsAnError(t *testing.T) {
	data, err := New("e").Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, []byte("x"), data[:len(data)-4]} {
		if _, err := Decode(bad); err == nil {
			t.Errorf("%q was decoded", bad)
		}
	}
}
