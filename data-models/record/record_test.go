package record_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

func wire() *protos.HealthEvent {
	return &protos.HealthEvent{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true,
		Message: "NVRM: Xid", RecommendedAction: protos.RecommendedAction_RESTART_BM, ErrorCode: []string{"79"},
		EntitiesImpacted:   []*protos.Entity{{EntityType: "PCI", EntityValue: "0000:3b:00"}},
		Metadata:           map[string]string{"seq": "7", "seqEpoch": "e", "bootID": "b"},
		GeneratedTimestamp: timestamppb.New(time.Unix(1700000000, 123456000)), NodeName: "n1",
		QuarantineOverrides: &protos.BehaviourOverrides{Force: true}, DrainOverrides: &protos.BehaviourOverrides{Skip: true},
		ProcessingStrategy: protos.ProcessingStrategy_PERSIST_ONLY, Id: "id",
	}
}

func TestWireRoundTrip(t *testing.T) {
	want := wire()
	if diff := cmp.Diff(want, record.ToProto(record.FromProto(want)), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownNumbersDoNotAct(t *testing.T) {
	e := record.FromProto(&protos.HealthEvent{RecommendedAction: 77, ProcessingStrategy: 9})
	if e.RecommendedAction != record.ActionUnknown || e.ProcessingStrategy != record.PersistOnly {
		t.Errorf("got %s, %s", e.RecommendedAction, e.ProcessingStrategy)
	}
}

func TestStoredShape(t *testing.T) {
	b, err := json.Marshal(record.Record{ID: "x", Event: record.FromProto(wire())})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"healthevent":{`, `"processingstrategy":"PERSIST_ONLY"`, `"agent":"syslog-health-monitor"`, `"ishealthy":false`,
		`"nodename":"n1"`, `"recommendedaction":"RESTART_BM"`, `"healtheventstatus":{"nodequarantined":null`, `"entitytype":"PCI"`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the document lacks %s: %s", want, b)
		}
	}
	var back record.Record
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record.FromProto(wire()), back.Event); diff != "" {
		t.Error(diff)
	}
}

func TestSeq(t *testing.T) {
	e := record.FromProto(wire())
	if seq, epoch, ok := e.Seq(); seq != 7 || epoch != "e" || !ok {
		t.Errorf("got %d %q %v", seq, epoch, ok)
	}
	for _, bad := range []map[string]string{nil, {"seq": "7"}, {"seq": "-1", "seqEpoch": "e"}, {"seq": "x", "seqEpoch": "e"}} {
		if _, _, ok := (record.Event{Metadata: bad}).Seq(); ok {
			t.Errorf("%v counts as a sequence", bad)
		}
	}
}

func TestDigest(t *testing.T) {
	a, b := record.FromProto(wire()), record.FromProto(wire())
	if record.Digest(a) != record.Digest(b) {
		t.Error("equal events have different digests")
	}
	b.Message = "another"
	if record.Digest(a) == record.Digest(b) {
		t.Error("different events have one digest")
	}
}

func TestCheckWrite(t *testing.T) {
	now := time.Unix(1, 0)
	matched := record.Status{QuarantineVerdict: &record.Verdict{Reason: record.Matched}, NodeQuarantined: record.Quarantined, Session: "s", Faults: []record.Fault{{Key: "k"}}}
	with := func(change func(*record.Status)) record.Status {
		s := matched
		s.Faults = append([]record.Fault(nil), matched.Faults...)
		change(&s)
		return s
	}
	yes := true
	tests := map[string]struct {
		writer        record.Writer
		before, after record.Status
		want          error
	}{
		"quarantine opens":             {record.FaultQuarantine, record.Status{}, matched, nil},
		"nothing changed":              {record.NodeDrainer, matched, matched, nil},
		"connector never writes":       {record.Connector, record.Status{}, matched, record.ErrNotOwner},
		"drainer quarantines":          {record.NodeDrainer, record.Status{}, matched, record.ErrNotOwner},
		"quarantine drains":            {record.FaultQuarantine, matched, with(func(s *record.Status) { s.UserPodsEvictionStatus.Status = "InProgress" }), record.ErrNotOwner},
		"drainer drains":               {record.NodeDrainer, matched, with(func(s *record.Status) { s.UserPodsEvictionStatus.Status = "InProgress" }), nil},
		"remediation remediates":       {record.FaultRemediation, matched, with(func(s *record.Status) { s.FaultRemediated = &yes }), nil},
		"drainer remediates":           {record.NodeDrainer, matched, with(func(s *record.Status) { s.FaultRemediated = &yes }), record.ErrNotOwner},
		"un-quarantined a fault":       {record.FaultQuarantine, matched, with(func(s *record.Status) { s.NodeQuarantined = record.UnQuarantined }), record.ErrIllegalTransition},
		"cancelled":                    {record.FaultQuarantine, matched, with(func(s *record.Status) { s.NodeQuarantined = record.QuarantineCanceled }), nil},
		"verdict changed":              {record.FaultQuarantine, matched, with(func(s *record.Status) { s.QuarantineVerdict = &record.Verdict{Reason: record.DryRun} }), record.ErrIllegalTransition},
		"session changed":              {record.FaultQuarantine, matched, with(func(s *record.Status) { s.Session = "t" }), record.ErrIllegalTransition},
		"entry cleared":                {record.FaultQuarantine, matched, with(func(s *record.Status) { s.Faults[0].ClearedTimestamp = &now }), nil},
		"entry dropped":                {record.FaultQuarantine, matched, with(func(s *record.Status) { s.Faults = nil }), record.ErrIllegalTransition},
		"entry reopened":               {record.FaultQuarantine, with(func(s *record.Status) { s.Faults[0].ClearedTimestamp = &now }), matched, record.ErrIllegalTransition},
		"held becomes matched":         {record.FaultQuarantine, record.Status{QuarantineVerdict: &record.Verdict{Reason: record.Held}}, record.Status{QuarantineVerdict: &record.Verdict{Reason: record.Matched}}, nil},
		"drain restarted":              {record.NodeDrainer, record.Status{UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionSucceeded}}, record.Status{UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionInProgress}}, record.ErrIllegalTransition},
		"remediation attempts dropped": {record.FaultRemediation, record.Status{Remediation: &record.Remediation{Attempts: make([]record.Attempt, 2)}}, record.Status{Remediation: &record.Remediation{Attempts: make([]record.Attempt, 1)}}, record.ErrIllegalTransition},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := record.CheckWrite(tt.writer, tt.before, tt.after); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestTransitionsAreListedOnce(t *testing.T) {
	seen := map[record.Transition]bool{}
	for _, tr := range record.Transitions() {
		if seen[tr] || tr.From == tr.To {
			t.Errorf("%+v is listed twice or goes nowhere", tr)
		}
		seen[tr] = true
	}
	if len(seen) == 0 {
		t.Error("no transitions")
	}
}

func TestRecordLifecycle(t *testing.T) {
	now := time.Unix(1, 0)
	base := func(strategy record.Strategy, healthy bool, reason record.Reason, cleared bool) record.Record {
		r := record.Record{Event: record.Event{ProcessingStrategy: strategy, IsHealthy: healthy}}
		r.Status.Faults = []record.Fault{{Key: "k"}}
		if cleared {
			r.Status.Faults[0].ClearedTimestamp = &now
		}
		if reason != "" {
			r.Status.QuarantineVerdict = &record.Verdict{Reason: reason}
		}
		return r
	}
	tests := map[string]struct {
		r                       record.Record
		open, pending, finished bool
	}{
		"unjudged fault":    {base(record.Process, false, "", false), false, true, false},
		"matched":           {base(record.Process, false, record.Matched, false), true, false, false},
		"matched, cleared":  {base(record.Process, false, record.Matched, true), false, false, true},
		"held":              {base(record.Process, false, record.Held, false), false, true, false},
		"no rule":           {base(record.Process, false, record.NoRuleMatched, false), false, false, true},
		"unjudged recovery": {base(record.Process, true, "", false), false, true, false},
		"judged recovery":   {base(record.Process, true, record.Cleared, false), false, false, true},
		"persist only":      {base(record.PersistOnly, false, "", false), false, false, true},
		"persist only, even if somebody judged it": {base(record.PersistOnly, false, record.Matched, false), false, false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := [3]bool{record.Open(tt.r), record.Pending(tt.r), record.Finished(tt.r)}
			if want := [3]bool{tt.open, tt.pending, tt.finished}; got != want {
				t.Errorf("open, pending, finished = %v, want %v", got, want)
			}
		})
	}
}

// TestSelectorsThatActNeverSeePersistOnly: the feeds of the services that act
// filter on the strategy.
func TestSelectorsThatActNeverSeePersistOnly(t *testing.T) {
	r := record.Record{Event: record.Event{NodeName: "n", ProcessingStrategy: record.PersistOnly}}
	r.Status = record.Status{
		NodeQuarantined: record.Quarantined, UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionSucceeded},
		QuarantineVerdict: &record.Verdict{Reason: record.Matched},
	}
	for _, s := range []record.Selector{
		record.ProcessableHealthEventInserts(), record.ProcessableNonFatalUnhealthyInserts(), record.NodeQuarantineStatus(),
		record.QuarantinedAndDrainedNodes(), record.BacklogOfNode("n"), record.OpenOfNode("n"),
	} {
		if s.Matches(r) {
			t.Errorf("%s selects a PERSIST_ONLY record", s.Name)
		}
	}
	if !record.AllHealthEventInserts().Matches(r) {
		t.Error("the exporter misses it")
	}
}

func TestParse(t *testing.T) {
	if a, err := record.ParseAction("REBOOT_NODE"); a != record.ActionRestartVM || err != nil {
		t.Errorf("REBOOT_NODE is %s, %v", a, err)
	}
	if _, err := record.ParseAction("REBOOT"); err == nil {
		t.Error("REBOOT was accepted")
	}
	for earlier, ours := range map[string]string{"EXECUTE_REMEDIATION": ": use PROCESS in place of this value", "STORE_ONLY": ": use PERSIST_ONLY in place of this value", "STORE_AND_ANALYSE": "has no replacement"} {
		if _, err := record.ParseStrategy(earlier); err == nil || !strings.Contains(err.Error(), ours) {
			t.Errorf("%s: %v, want %q in it", earlier, err, ours)
		}
	}
	if _, err := record.ParseStrategy("process"); err == nil {
		t.Error("process was accepted")
	}
}
