package timeline_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// night is the day of every script; at=26:00:00 is the morning after.
var night = time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)

// script is the facts of one script.
type script struct {
	t        *testing.T
	facts    timeline.Facts
	fleet    timeline.FleetFacts
	records  []*record.Record
	previous *timeline.Timeline // what follow begins with
}

// TestScripts reports stories from facts and compares what an operator reads.
//
//	at 03:05:00                        the time of the question
//	record id= at= [code= action= ...] a stored record; the input is its message
//	       [unconfirmed within=] [confirms= by=]
//	verdict id= reason= at= [rule=] [cordon] [quarantined=]
//	drain id= status= [at=]            the input is its message
//	attempt id= name= uid= at= [done= state= reason=]
//	outcome id= is= reason= [at=] [remediated=]
//	clear id= by= at=
//	node name= [ready= cordoned ours session= state= boot= ...]
//	object name= uid= node= at=        the input is a condition per line
//	aside id= consumer= key= at= deaths=
//	undecodable id=
//	uncovered node= at= id=            a GPU node without a live publisher
//	counted node= records= first= last=  events beyond a quota; a thousand bytes each
//	undelivered node= at=              a condition of a Node that is there; the input is its message
//	missing store|cluster|brake        the input is the problem
//	back                               the store is read again
//	check name= phase= [storm=]        a NodeHealthCheck; the input is its reason, and then a
//	                                   line per node: name healthy-since [kind/name began given-up]...
//	brake on|off [at= by=]             the emergency stop; the input is the reason
//	why [node] / status / json [node]
//	follow                             what has come since the last why or follow
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t}
		s.facts.Pause = timeline.PauseState{Read: true}
		s.facts.Store, s.facts.Cluster = timeline.Source{Name: "store", Read: true}, timeline.Source{Name: "API server", Read: true}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return s.run(d)
		})
	})
}

func (s *script) run(d *datadriven.TestData) string {
	a := args{s.t, d}
	switch d.Cmd {
	case "at":
		s.facts.Now = clockOf(s.t, d.CmdArgs[0].Key)
	case "record":
		s.record(a)
	case "verdict", "drain", "attempt", "outcome", "clear", "waiting":
		s.setStatus(a)
	case "node":
		n := a.node()
		if n.Name == "gpu-1" {
			s.facts.Sighting = &n
		}
		s.fleet.Nodes = append(slices.DeleteFunc(s.fleet.Nodes, func(x timeline.Node) bool { return x.Name == n.Name }), n)
	case "object":
		s.facts.Objects = append(s.facts.Objects, a.object())
	case "consumer":
		s.fleet.Consumers = append(s.fleet.Consumers, timeline.Consumer{
			Name: a.text("name"), Known: !a.has("unknown"), Problem: d.Input, Waiting: a.number("waiting"), Oldest: a.time("oldest"),
			CommittedAt: a.time("committed"), Lost: a.text("lost"), More: a.has("more"),
		})
	case "brake":
		s.facts.Pause = timeline.PauseState{Read: true, On: d.CmdArgs[0].Key == "on", Since: a.time("at"), By: a.text("by"), Reason: d.Input}
	case "check":
		c := a.check()
		s.facts.Checks, s.fleet.Checks = append(s.facts.Checks, c), append(s.fleet.Checks, c)
	case "aside":
		one := timeline.DeadLetter{Consumer: a.text("consumer"), Record: a.text("id"), Key: a.text("key"), At: a.time("at"), Crashes: a.number("deaths")}
		s.facts.DeadLettered, s.fleet.DeadLettered = append(s.facts.DeadLettered, one), append(s.fleet.DeadLettered, one)
	case "run":
		var run v1alpha1.RepairRun
		if err := yaml.UnmarshalStrict([]byte(d.Input), &run); err != nil {
			s.t.Fatalf("%s: %v", d.Pos, err)
		}
		run.CreationTimestamp.Time = a.time("at")
		s.fleet.Runs = append(s.fleet.Runs, run)
	case "refused":
		if r, bad := timeline.RefusedBy(a.text("kind"), a.text("name"), []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionFalse, Message: d.Input}}); bad {
			s.fleet.Refused = append(s.fleet.Refused, r)
		}
	case "uncovered":
		s.fleet.Uncovered = append(s.fleet.Uncovered, timeline.Uncovered{Node: a.text("node"), Since: a.time("at"), Why: d.Input, Record: a.text("id")})
	case "counted":
		n := int64(a.number("records"))
		s.fleet.Counted = append(s.fleet.Counted, timeline.Counted{Node: a.text("node"), Records: n, Bytes: 1000 * n, First: a.time("first"), Last: a.time("last")})
	case "undelivered":
		i := slices.IndexFunc(s.fleet.Nodes, func(n timeline.Node) bool { return n.Name == a.text("node") })
		s.fleet.Nodes[i].Conditions = append(s.fleet.Nodes[i].Conditions, timeline.Condition{Type: nodemark.EventDelivery, Status: "True", Message: d.Input, Since: a.time("at")})
	case "undecodable":
		s.fleet.Undecodable = append(s.fleet.Undecodable, a.text("id"))
	case "back":
		s.facts.Store.Read, s.facts.Store.Problem = true, ""
	case "missing":
		if d.CmdArgs[0].Key != "store" {
			s.facts.Pause = timeline.PauseState{Problem: d.Input}
		}
		if d.CmdArgs[0].Key == "brake" {
			break
		}
		src := &s.facts.Store
		if d.CmdArgs[0].Key == "cluster" {
			src, s.facts.Sighting = &s.facts.Cluster, nil
		}
		*src = timeline.Source{Name: src.Name, Problem: d.Input}
	case "why", "follow", "json", "status":
		return s.execute(a)
	default:
		s.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return ""
}

func (s *script) execute(a args) string {
	f, fleet := s.facts, s.fleet
	f.Node = "gpu-1"
	fleet.Now, fleet.Store, fleet.Cluster, fleet.Pause = f.Now, f.Store, f.Cluster, f.Pause
	if f.Store.Read {
		for _, r := range s.records {
			f.Records = append(f.Records, *r)
			if r.IsFault() && r.Acts() {
				fleet.Newest = append(fleet.Newest, *r)
			}
			if record.Open(*r) {
				fleet.Open = append(fleet.Open, *r)
			} else if record.Pending(*r) {
				fleet.Backlog = append(fleet.Backlog, *r)
			}
		}
	}
	style := timeline.Style{All: a.has("all")}
	if a.has("paint") {
		style.Paint = func(m timeline.Mood, text string) string { return "<" + string(m) + ">" + text + "</>" }
	}
	var b strings.Builder
	var err error
	switch a.Cmd {
	case "why":
		now := timeline.Assemble(f)
		reported := now.MergeReported(timeline.Timeline{})
		s.previous, err = &reported, now.Write(&b, style)
	case "follow":
		now := timeline.Assemble(f)
		err = now.WriteChanges(&b, *s.previous, style)
		if now.Changed(*s.previous) != (b.Len() > 0) {
			s.t.Errorf("%s: Changed says %t", a.Pos, now.Changed(*s.previous))
		}
		reported := now.MergeReported(*s.previous)
		s.previous = &reported
	case "status":
		err = timeline.Survey(fleet).Write(&b, style)
	case "json":
		enc := json.NewEncoder(&b)
		enc.SetIndent("", " ")
		err = enc.Encode(timeline.Assemble(f))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

func (s *script) record(a args) {
	r := &record.Record{ID: a.text("id"), Append: int64(len(s.records) + 1), CreatedAt: a.time("at")}
	if r.Node.ProviderID = a.or("machine", "m1"); r.Node.ProviderID == "none" {
		r.Node.ProviderID = ""
	}
	r.Event = record.Event{
		Agent: a.or("agent", "syslog-health-monitor"), CheckName: a.or("check", "SysLogsXIDError"), ComponentClass: "GPU",
		NodeName: a.or("node", "gpu-1"), Message: a.Input, IsHealthy: a.has("healthy"), IsFatal: !a.has("nonfatal"),
		RecommendedAction: record.Action(a.or("action", "RESTART_BM")), ProcessingStrategy: record.Process, ID: r.ID,
		GeneratedTimestamp: r.CreatedAt.Add(-3 * time.Millisecond),
	}
	if a.has("newer") {
		r.MinVersion = record.Version + 1
	}
	if a.has("persist") {
		r.Event.ProcessingStrategy = record.PersistOnly
	}
	if code := a.text("code"); code != "" {
		r.Event.ErrorCode = strings.Split(code, "+")
	}
	if gpu := a.text("gpu"); gpu != "" {
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU", EntityValue: gpu}}
	}
	r.Event.Metadata = map[string]string{}
	if boot := a.text("boot"); boot != "" {
		r.Event.Metadata[record.MetadataBootID] = boot
	}
	if n := a.text("repeats"); n != "" {
		within, err := time.ParseDuration(a.text("within"))
		if err != nil {
			s.t.Fatal(err)
		}
		r.Event.Metadata[record.MetadataRepeats] = n
		r.Event.Metadata[record.MetadataRepeatsSince] = r.Event.GeneratedTimestamp.Add(-within).Format(time.RFC3339Nano)
	}
	s.confirmation(a, r)
	s.records = append(s.records, r)
}

// confirmation has a record wait, or be the confirmation of one.
func (s *script) confirmation(a args, r *record.Record) {
	if within := a.text("within"); a.has("unconfirmed") {
		r.Event.ProcessingStrategy = record.PersistOnly
		r.Event.Metadata[record.MetadataStrategyReason] = record.Unconfirmed
		r.Event.Metadata[record.MetadataWaitsFor], r.Event.Metadata[record.MetadataWaitsWithin] = "a second signal", within
	}
	of := a.text("confirms")
	if of == "" {
		return
	}
	id, err := record.ConfirmationID(of)
	if err != nil {
		s.t.Fatal(err)
	}
	if of := s.recordByID(of); of != nil {
		r.Event.GeneratedTimestamp = of.Event.GeneratedTimestamp
	}
	r.ID, r.Event.ID = id, id
	r.Event.Metadata[record.MetadataConfirms], r.Event.Metadata[record.MetadataConfirmedBy] = of, a.text("by")
	r.Event.Metadata[record.MetadataConfirmedRule], r.Event.Metadata[record.MetadataConfirmedHow] = "both", "gpu-health-monitor GpuAllWatch"
}

// recordByID is a record, or nil.
func (s *script) recordByID(id string) *record.Record {
	for _, r := range s.records {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (s *script) find(id string) *record.Record {
	if r := s.recordByID(id); r != nil {
		return r
	}
	s.t.Fatalf("no record %q", id)
	return nil
}

func (s *script) setStatus(a args) {
	r := s.find(a.text("id"))
	st := &r.Status
	at := a.time("at")
	switch a.Cmd {
	case "verdict":
		v := &record.Verdict{Reason: record.Reason(a.text("reason")), At: at, Detail: a.Input, Effects: record.Effects{Cordon: a.has("cordon")}}
		if rule := a.text("rule"); rule != "" {
			v.RuleSets = []string{rule}
		}
		st.QuarantineVerdict, st.Session, st.NodeQuarantined = v, a.text("session"), record.Quarantine(a.text("quarantined"))
		if st.NodeQuarantined != "" && r.IsFault() {
			done := at.Add(20 * time.Millisecond)
			st.QuarantineFinishTimestamp = &done
		}
		if v.Reason == record.Matched {
			st.Faults = []record.Fault{{Key: r.ID}}
		}
	case "drain":
		st.UserPodsEvictionStatus = record.EvictionStatus{Status: record.Eviction(a.text("status")), Message: a.Input}
		if !at.IsZero() {
			st.DrainFinishTimestamp = &at
		}
	case "attempt":
		s.attempt(a, st, at)
	case "outcome":
		if st.Remediation == nil {
			st.Remediation = &record.Remediation{Cause: a.or("cause", r.ID)}
		}
		rem := st.Remediation
		rem.Outcome, rem.Reason, rem.Message = record.Outcome(a.text("is")), a.text("reason"), a.Input
		if yes := a.text("remediated"); yes != "" {
			st.FaultRemediated = new(yes == "true")
		}
		if !at.IsZero() {
			st.LastRemediationTimestamp = &at
		}
	case "waiting": // since at
		if st.Remediation == nil {
			st.Remediation = &record.Remediation{Cause: r.ID}
		}
		st.Remediation.Waiting = &record.Wait{Reason: a.text("reason"), Message: a.Input, Since: at}
		if until := a.time("until"); !until.IsZero() {
			st.Remediation.Waiting.Until = &until
		}
	case "clear":
		st.Faults[0].ClearedTimestamp, st.Faults[0].ClearedBy = &at, a.text("by")
	}
}

func (s *script) attempt(a args, st *record.Status, at time.Time) {
	if st.Remediation == nil {
		st.Remediation = &record.Remediation{Cause: a.text("id")}
	}
	x := record.Attempt{
		Ordinal: len(st.Remediation.Attempts) + 1, Group: "restart", Action: record.ActionRestartBM, Kind: "RebootNode", Name: a.text("name"),
		UID: a.text("uid"), SubmittedAt: at, State: a.text("state"), Reason: a.text("reason"), Message: a.Input,
	}
	if done := a.time("done"); !done.IsZero() {
		x.FinishedAt = &done
	}
	if x.Chain = a.text("chain"); x.Chain != "" {
		x.Kind = "RepairRun"
	}
	for step := range strings.FieldsSeq(a.text("steps")) {
		name, state, _ := strings.Cut(step, "/")
		x.Steps = append(x.Steps, record.RepairStep{Name: name, State: state, Object: "Job " + name, FinishedAt: x.FinishedAt})
	}
	st.Remediation.Attempts = append(st.Remediation.Attempts, x)
}
