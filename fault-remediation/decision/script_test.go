package decision_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// script runs one command of a golden script.
func (w *world) script(d *datadriven.TestData) string {
	var out strings.Builder
	switch d.Cmd {
	case "node":
		w.setNode(d)
	case "actions":
		w.setActions(d.Input)
	case "fault":
		w.addFault(d)
	case "drained":
		w.each(d, func(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = record.EvictionSucceeded })
	case "clear":
		w.each(d, func(r *record.Record) { at := w.now; r.Status.Faults[0].ClearedTimestamp = &at })
	case "cancel": // as fault-quarantine does for a person who uncordoned the node
		w.each(d, func(r *record.Record) {
			at := w.now
			r.Status.NodeQuarantined = record.QuarantineCanceled
			r.Status.Faults[0].ClearedTimestamp, r.Status.Faults[0].ClearedBy = &at, record.ClearedManual
		})
	case "newer": // only a newer version may change the records
		w.each(d, func(r *record.Record) { r.MinVersion = record.Version + 1 })
	case "upgraded": // to that version
		w.each(d, func(r *record.Record) { r.MinVersion = 0 })
	case "lemons": // repairs=3 [keep]
		w.policy.RepeatOffender = decision.RepeatOffenderPolicy{Repairs: decision.DefaultRepeatOffenderRepairs, Window: decision.DefaultRepeatOffenderWindow, Keep: d.HasArg("keep")}
		d.MaybeScanArgs(w.t, "repairs", &w.policy.RepeatOffender.Repairs)
	case "repair":
		w.repair(d)
	case "pods":
		w.pods = nil
		for _, a := range d.CmdArgs {
			w.pods = append(w.pods, a.Key)
		}
	case "object":
		w.setObject(d)
	case "reading":
		w.unread = ""
		if d.HasArg("fails") {
			w.unread = decision.ReadError
		}
		if d.HasArg("kind-missing") {
			w.unread = decision.KindMissing
		}
	case "clock":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(w.t, "clock: %v", err)
		}
		w.now = w.now.Add(by)
		return "t=" + w.now.Sub(w.start).String() + "\n"
	case "run":
		crash := ""
		d.MaybeScanArgs(w.t, "crash", &crash)
		w.run(&out, decision.Reason(crash))
		return out.String()
	case "records":
		for _, r := range w.view().Records {
			text, message := record.Remediated(r.Status), ""
			if rem := r.Status.Remediation; rem != nil {
				text, message = statusText(r.Status), rem.Message
			}
			fmt.Fprintf(&out, "%s=%s\n", r.ID, text)
			if message != "" {
				fmt.Fprintf(&out, "  %s\n", message)
			}
		}
		return out.String()
	case "annotation":
		before := w.annotation
		w.annotation = decision.Annotation(w.view().Records, w.node.Session, nil)
		for _, c := range decision.NewCalls(before, w.annotation) {
			fmt.Fprintf(&out, "Event: %s %s\n", c.Record, c.Reason)
		}
		return out.String() + w.annotation + "\n"
	default:
		d.Fatalf(w.t, "unknown command %s", d.Cmd)
	}
	return ""
}

// repair runs a whole repair of a separate fault, in a separate session, without output:
// repair id=s1 [attempts=2] [unsent].
func (w *world) repair(d *datadriven.TestData) {
	var id string
	attempts := 1
	d.ScanArgs(w.t, "id", &id)
	d.MaybeScanArgs(w.t, "attempts", &attempts)
	w.node.Session, w.node.Marked = id, true
	var unheard strings.Builder
	w.addFault(&datadriven.TestData{Cmd: "fault", CmdArgs: []datadriven.CmdArg{{Key: "id", Vals: []string{id}}, {Key: "action", Vals: []string{"RESTART_VM"}}, {Key: "drained"}}})
	for n := range attempts {
		w.run(&unheard, "")
		cur, ok := decision.Current(w.view().Records)
		if !ok {
			d.Fatalf(w.t, "no repair is under way:\n%s", &unheard)
		}
		o := w.objects[cur.Attempt.Name]
		switch o.Health = (healthrule.Result{State: healthrule.Healthy}); {
		case d.HasArg("unsent"):
			o.Health.State, o.Unsent, o.SessionOver = healthrule.Unhealthy, true, true
		case n < attempts-1:
			o.Health.State = healthrule.Unhealthy
		}
		w.run(&unheard, "")
		w.now = w.now.Add(time.Hour)
	}
	r, at := w.records[id], w.now
	r.Status.Faults[0].ClearedTimestamp = &at
	r.Revision++
	w.records[id] = r
	w.node.Session, w.node.Marked = "", false
	w.run(&unheard, "")
}

func (w *world) setNode(d *datadriven.TestData) {
	if w.node.Name == "" {
		w.node = decision.Node{Name: "gpu-7", Presence: decision.Present, Marked: true, Ready: true, Kubelet: kubelet.Liveness{State: kubelet.Alive}, Identity: record.NodeIdentity{UID: "n1"}}
	}
	d.MaybeScanArgs(w.t, "session", &w.node.Session)
	d.MaybeScanArgs(w.t, "machine", &w.node.Identity.ProviderID)
	d.MaybeScanArgs(w.t, "uid", &w.node.Identity.UID)
	d.MaybeScanArgs(w.t, "boot", &w.node.Identity.BootID)
	d.MaybeScanArgs(w.t, "claim", &w.node.Claim)
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "schedulable":
			w.node.Marked = false
		case "marked":
			w.node.Marked = true
		case "deleted":
			w.node.Presence = decision.Absent
		case "back":
			w.node.Presence = decision.Present
		case "released":
			w.node.Session, w.node.Marked = "", false
		case "not-ready":
			w.node.Ready = false
		case "ready":
			w.node.Ready = true
		case "kubelet-alive":
			w.node.Kubelet = kubelet.Liveness{State: kubelet.Alive}
		case "kubelet-silent": // which leaves the condition as it is
			w.node.Kubelet = kubelet.Liveness{State: kubelet.Silent}
		case "kubelet-watched": // for a minute from now on
			w.node.Kubelet = kubelet.Liveness{Until: w.now.Add(time.Minute)}
		case "ready-now":
			w.node.Ready, w.node.ReadySince = true, w.now
		case "anonymous":
			w.node.Identity.ProviderID = ""
		case "recreated": // another Node of the same name, without the marks
			w.node.RepeatOffender = decision.RepeatOffenderMark{}
		case "unlabelled": // a person removes the repeat offender label
			w.node.RepeatOffender.Label = false
		case "labelled":
			w.node.RepeatOffender.Label = true
		case "unclaimed":
			w.node.Claim = ""
		}
	}
}

func (w *world) addFault(d *datadriven.TestData) {
	var id, act, boot, session, gpus string
	seq := 0
	d.ScanArgs(w.t, "id", &id)
	d.ScanArgs(w.t, "action", &act)
	d.MaybeScanArgs(w.t, "boot", &boot)
	d.MaybeScanArgs(w.t, "seq", &seq)
	d.MaybeScanArgs(w.t, "gpu", &gpus)
	if session = w.node.Session; d.HasArg("session") {
		d.ScanArgs(w.t, "session", &session)
	}
	r := record.Record{
		ID: id, CreatedAt: w.now, Append: int64(len(w.records) + 1), Node: w.node.Identity,
		Event: record.Event{
			NodeName: w.node.Name, Agent: "monitor", RecommendedAction: record.Action(act), ProcessingStrategy: record.Process,
			GeneratedTimestamp: w.now, Metadata: map[string]string{},
		},
		Status: record.Status{
			NodeQuarantined: record.Quarantined, Session: session, Faults: []record.Fault{{Key: id}},
			QuarantineVerdict: &record.Verdict{Reason: record.Matched, NodeBootID: w.node.Identity.BootID},
		},
	}
	if a := record.Action(act); !a.Known() && !d.HasArg("newer") {
		r.Event.RecommendedAction, r.Event.CustomRecommendedAction = record.ActionCustom, act
	}
	if d.HasArg("unseen") { // by the connector; fault-quarantine knows it
		r.Node, r.Status.QuarantineVerdict.Machine = record.NodeIdentity{}, new(w.node.Identity)
	}
	if boot != "" {
		r.Event.Metadata[record.MetadataBootID] = boot
	}
	for gpu := range strings.FieldsSeq(strings.ReplaceAll(gpus, "+", " ")) {
		r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: "GPU_UUID", EntityValue: gpu})
	}
	if seq > 0 {
		r.Seq, r.SeqEpoch = uint64(seq), "epoch"
		r.Event.Metadata[record.MetadataSeqRuns] = "run"
	}
	if d.HasArg("drained") {
		r.Status.UserPodsEvictionStatus.Status = record.AlreadyDrained
	}
	w.records[id] = r
}

func (w *world) each(d *datadriven.TestData, change func(*record.Record)) {
	for _, a := range d.CmdArgs {
		r, ok := w.records[a.Key]
		if !ok {
			d.Fatalf(w.t, "no record %s", a.Key)
		}
		change(&r)
		r.Revision++
		w.records[a.Key] = r
	}
}

// setObject changes the object of the current attempt.
func (w *world) setObject(d *datadriven.TestData) {
	cur, ok := decision.Current(w.view().Records)
	if !ok {
		d.Fatalf(w.t, "no object is under way")
	}
	name := cur.Attempt.Name
	if d.HasArg("foreign") {
		w.objects[name] = &decision.Object{Presence: decision.Present, UID: "foreign", Health: healthrule.Result{State: healthrule.Healthy}}
		return
	}
	o := w.objects[name]
	d.MaybeScanArgs(w.t, "observed", &o.ObservedBoot)
	d.MaybeScanArgs(w.t, "prior", &o.PriorBoot)
	d.MaybeScanArgs(w.t, "uid", &o.UID)
	condition := func(state healthrule.State, text string) {
		o.Health = healthrule.Result{State: state, Reason: "MatchedCondition", Message: text}
	}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "healthy":
			condition(healthrule.Healthy, "condition status: True, message: node is back")
		case "unhealthy":
			condition(healthrule.Unhealthy, "condition status: False, message: node did not come back")
		case "refused":
			condition(healthrule.Unhealthy, "condition status: False, message: plugin says no")
			o.Unsent = true
		case "session-over":
			condition(healthrule.Unhealthy, "condition status: False, message: session is over")
			o.Unsent, o.SessionOver = true, true
		case "escalated":
			o.Health = healthrule.Result{State: healthrule.Unhealthy, Reason: "SucceededCondition", Message: "step validate: MatchedCondition: bad GPU"}
			o.Escalated, o.Steps = true, []record.RepairStep{{Name: "reboot", State: "Done"}, {Name: "validate", State: "Failed"}}
		case "misconfigured":
			o.Health = healthrule.Result{State: healthrule.Unhealthy, Reason: "SucceededCondition", Message: "step validate: RenderFailed: map has no entry for key \"boot\""}
			o.Misconfigured, o.Steps = true, []record.RepairStep{{Name: "reset", State: "Done"}, {Name: "validate", State: "Failed"}}
		case "unknown":
			why := "step reset: Lost: the object was deleted"
			if o.Unsent = d.HasArg("unsent"); o.Unsent {
				why = "step reset: NameTaken: an object with this name exists and belongs to another controller"
			}
			o.Health = healthrule.Result{State: healthrule.Unhealthy, Reason: "SucceededCondition", Message: why}
			o.OutcomeUnknown, o.Steps = true, []record.RepairStep{{Name: "reset", State: "Failed"}, {Name: "reboot", State: "Skipped"}}
		case "not-needed":
			condition(healthrule.Healthy, "condition status: True, message: rebooted by somebody else")
			o.Unsent = true
		case "deleting": // a finalizer keeps it
			o.Deleting = true
		case "deleted":
			delete(w.objects, name)
		}
	}
}
