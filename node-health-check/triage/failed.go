package triage

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// failure is what failed of the acts of one verb in one pass.
type failure struct {
	nodes int
	first string // the first node, by name, and its error
}

// failures are the acts that failed, by their verbs. One that was cut short has not
// failed: the next leader does it.
func failures(outcomes []Outcome) map[Verb]*failure {
	found := map[Verb]*failure{}
	for _, o := range outcomes {
		if o.Err == nil || o.CutShort {
			continue
		}
		f := found[o.Act.Do]
		if f == nil {
			f = &failure{first: cut(fmt.Sprintf("node %s: %v", o.Act.Node, o.Err))}
			found[o.Act.Do] = f
		}
		f.nodes++
	}
	return found
}

// failed are sentences about them for the status.
func (c *closing) failed() []string {
	var out []string
	for _, verb := range sortedKeys(c.failing) {
		f := c.failing[verb]
		out = append(out, fmt.Sprintf("%s failed for %d nodes and is retried (%s)", verb.describe(), f.nodes, f.first))
	}
	return out
}

// warnFailed reports them once for as long as acts of the verb fail pass after pass.
func (c *closing) warnFailed() {
	for i, sentence := range c.failed() {
		c.warn("failed/"+string(sortedKeys(c.failing)[i]), NoticeFailed, sentence)
	}
}

// Undecided is the status of a check whose pass failed before anything was decided, and the
// notice of that: everything else is as the last pass left it.
func Undecided(stored v1alpha1.NodeHealthCheckStatus, err error, now time.Time) (v1alpha1.NodeHealthCheckStatus, []Notice) {
	s := *stored.DeepCopy()
	if s.Phase == "" {
		s.Phase = v1alpha1.PhaseEnabled
	}
	s.Reason = "The last evaluation failed and is retried: " + cut(err.Error())
	if !same(stored, s) {
		s.LastUpdateTime = &metav1.Time{Time: now}
	}
	return s, []Notice{{Key: "undecided", Warning: true, Reason: NoticeFailed, Message: "the evaluation failed and is retried: " + cut(err.Error())}}
}
