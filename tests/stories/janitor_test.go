package stories

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	janitor "github.com/nvidia/nvsentinel/janitor/repair"
)

const hour = time.Hour

// rebootPolicy is the janitor's default.
var rebootPolicy = janitor.Policy{Timeout: 25 * time.Minute, ResendAfter: 10 * time.Minute, Poll: 30 * time.Second}

// terminations is the equivalence group of the objects that are TerminateNodes.
const terminations = "terminate"

// janitor takes every maintenance object as far as it gets now.
func (w *world) janitor() {
	for _, o := range w.inOrder() {
		for range 8 {
			if !w.rebootStep(o) {
				break
			}
		}
	}
}

// rebootStep carries out one decision; goOn asks for the next.
func (w *world) rebootStep(o *object) (goOn bool) {
	v := janitor.View{Object: o.Object, Plugin: janitor.ReportsReady}
	next := janitor.Reboot
	if o.group == terminations {
		next = janitor.Termination
	}
	if w.machineDeleted {
		v.Plugin = janitor.ReportsDeleted
	}
	if n := w.node; n != nil {
		v.Node = janitor.Node{
			Exists: true, Identity: kube.NodeIdentity(n), Ready: kube.NodeReady(n), Session: n.Annotations[nodemark.SessionAnnotation],
			Schedulable: !n.Spec.Unschedulable, Missing: nodemark.Read(n).Missing, Claim: n.Annotations[nodemark.RepairAnnotation],
		}
	}
	d := next(v, rebootPolicy, w.now)
	switch d.Step {
	case janitor.Wait, janitor.Done, janitor.QueryPlugin, janitor.Expire:
		return false
	case janitor.DeleteNode:
		w.write()
		w.node, w.pods = nil, nil
		w.log("janitor", "%s: %s", d.Step, d.Reason)
	case janitor.Begin:
		w.write()
		w.begin(o)
	case janitor.Claim:
		w.write()
		w.node.Annotations[nodemark.RepairAnnotation] = o.UID
	case janitor.Send, janitor.Resend:
		w.send(o)
	case janitor.Succeed, janitor.Fail, janitor.SessionOver:
		w.write()
		w.complete(o, d)
	case janitor.Unclaim:
		w.unclaim(o)
	}
	return true
}

func (w *world) begin(o *object) {
	o.Finalizer = true
	if o.Started.IsZero() {
		o.Started = w.now
	}
	if w.node != nil && w.node.Status.NodeInfo.BootID != "" && o.Key == "" {
		id := kube.NodeIdentity(w.node)
		o.Key, o.PreBoot, o.Machine = o.UID, id.BootID, id
		o.Machine.BootID = ""
	}
}

// send notes the signal, sends it and notes the answer. The provider honours
// the key: the same signal twice is one reboot.
func (w *world) send(o *object) {
	w.write()
	o.Signals++
	o.LastAt = w.now
	if o.SignalAt.IsZero() {
		o.SignalAt = w.now
	}
	w.write()
	if !slices.Contains(w.signals, o.Key) {
		w.signals = append(w.signals, o.Key)
	}
	verb := "reboot"
	if o.group == terminations {
		verb = "termination"
	}
	w.log("janitor", "%s signal %s for %s", verb, o.Key, nodeName)
	if w.silent {
		return
	}
	w.write()
	o.Acknowledged = true
}

func (w *world) complete(o *object, d janitor.Verdict) {
	o.Completed = true
	o.health = healthrule.Result{State: healthrule.Unhealthy, Reason: "MatchedCondition", Message: string(d.Reason)}
	switch {
	case d.Step == janitor.Succeed:
		if w.node != nil {
			o.observed = w.node.Status.NodeInfo.BootID
		}
		o.unsent = o.Signals == 0
		o.health.State = healthrule.Healthy
	case o.Signals == 0:
		o.unsent, o.over = true, d.Step == janitor.SessionOver
	}
	w.log("janitor", "%s: %s", d.Step, d.Reason)
}

func (w *world) unclaim(o *object) {
	if w.node != nil && w.node.Annotations[nodemark.RepairAnnotation] == o.UID {
		w.write()
		delete(w.node.Annotations, nodemark.RepairAnnotation)
	}
	w.write()
	o.Finalizer = false
}
