package reconciler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// restoredReason: someone lifted the cordon or a taint of a node in quarantine in a way that is no release, so
// fault-quarantine has restored it. Action: if the node is sound, run `nvsentinel release <node>`. If a program
// lifts the marks again and again, have it leave the node alone, or mark nodes by a taint in place of the cordon.
const restoredReason = "MarksRestored"

// contested remembers the nodes whose marks were restored again and again.
type contested struct {
	mu    sync.Mutex
	nodes map[string]bool
}

// set notes whether a node is contested, and returns how many are.
func (c *contested) set(name string, is bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil {
		c.nodes = map[string]bool{}
	}
	if is {
		c.nodes[name] = true
	} else {
		delete(c.nodes, name)
	}
	return len(c.nodes)
}

// noteRestored counts and reports that a mark of a Node was restored; after is nil for
// a Node that was not looked at.
func (rc *Reconciler) noteRestored(ctx context.Context, name string, before, after *corev1.Node) {
	was, is := nodemark.Read(before), nodemark.Read(after)
	rc.Metrics.Contested.Set(float64(rc.contested.set(name, is.Restored.Count >= marks.ContestedAfter)))
	if is.Restored.Count <= was.Restored.Count {
		return
	}
	writer := nodemark.WriterOf(is.Restored.By)
	rc.Metrics.Restored.WithLabelValues(string(was.Lifted), string(writer)).Inc()
	rc.Log.Warn("node marks restored", "node", name, "session", is.Session, "lifted", was.Lifted, "by", is.Restored.By, "count", is.Restored.Count)
	if marks.ReportsRestore(is.Restored.Count) {
		rc.Nodes.Note(ctx, after, Event{Warning: true, Reason: restoredReason, Message: restoredText(after.Name, was, is.Restored)})
	}
}

// restoredText describes who lifted which mark, why that is no release, and what would be one.
func restoredText(name string, was nodemark.Marks, r nodemark.Restored) string {
	writer := r.By
	if writer == "" {
		writer = "An unknown client"
	}
	did := map[nodemark.ReleaseCause]string{nodemark.ByUncordon: "uncordoned the node", nodemark.ByUntaint: "removed a taint of the quarantine session"}[was.Lifted]
	was.LiftedBy = r.By
	why := map[marks.Why]string{
		marks.NoPerson:     "only a user can release a node",
		marks.RepairActive: "a remediation is active",
		marks.WriterHidden: "the API server does not record the user",
	}[marks.NoRelease(was)]
	text := fmt.Sprintf("%s %s, which is not a release because %s. Restored cordon, taints and labels, %d times in this quarantine session. ", writer, did, why, r.Count)
	if was.Session != "" {
		text += "To release the node, run nvsentinel release " + name
	} else {
		text += "They are removed when the maintenance object that claims the node has ended"
	}
	if r.Count >= marks.ContestedAfter {
		text += ". Another program removes them repeatedly: use a taint instead of the cordon, see docs/concepts/quarantine.md"
	}
	return text
}

// restoreWait is how long a lifted mark of a Node stays so; 0 if none does.
func (rc *Reconciler) restoreWait(node *corev1.Node) time.Duration {
	restoration, wait := marks.EvaluateRestoration(nodemark.Read(node), rc.Clock.Now())
	if restoration != marks.Later {
		return 0
	}
	return wait
}
