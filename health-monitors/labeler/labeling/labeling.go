// Package labeling decides which labels a node should have that say what is on
// it: the driver, the version of DCGM, Kata, and how many devices of a class it
// has and should have. It does no I/O and reads no clock.
package labeling

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// View is what is known of one Node. The caches that it was made from are filled.
type View struct {
	// Labels are the Node's own.
	Labels map[string]string
	// Ready is the Node's condition; without it what its status counts is old.
	Ready bool
	// DCGM and Driver are the pods on the Node that have not ended.
	DCGM, Driver []Pod
	// DCGMAnywhere and DriverAnywhere say that there is such a pod on any Node.
	DCGMAnywhere, DriverAnywhere bool
	// Counts are the devices by the name of their class.
	Counts map[string]Count
}

// Pod is one pod of a Node.
type Pod struct {
	Name   string
	Images []string
	// Ready is its condition, Ending that it was deleted and is still there.
	Ready, Ending bool
	Created       time.Time
}

// Policy is what an operator says.
type Policy struct {
	// Grace is how long a pod must be gone, or a count be lower, or higher than ever,
	// to be believed.
	Grace time.Duration
	// RequireReady asks for a Ready DCGM pod before its version is written.
	RequireReady bool
	// AssumeDCGM is the version on GPU nodes, whatever pods there are; empty looks
	// for pods.
	AssumeDCGM string
	// AssumeDriver says that GPU nodes have the driver.
	AssumeDriver bool
	// KataLabel is a label that says so beside Kata's own; may be empty.
	KataLabel string
	// Classes of devices to count.
	Classes []Class
}

// Reason is why a label is as it is. It is the label value of the changes' counter.
type Reason string

// Reasons.
const (
	// OptedOut: the Node is left alone.
	OptedOut Reason = "opted-out"
	// Seen: a pod, or a label of the Node, says so.
	Seen Reason = "seen"
	// Assumed: the configuration says so.
	Assumed Reason = "assumed"
	// Absent: nothing says so, and nothing did.
	Absent Reason = "absent"
	// NotReady: no pod of it was Ready yet.
	NotReady Reason = "not-ready"
	// NoVersion: the pod's image tells no version.
	NoVersion Reason = "no-version"
	// NoneAnywhere: not one such pod is left in the cluster, which is rather a wrong
	// name of it than the end of all.
	NoneAnywhere Reason = "none-anywhere"
	// Waits: its cause is gone, or a count is another, not for long enough.
	Waits Reason = "waits"
	// Gone: its cause has been gone for long enough.
	Gone Reason = "gone"
	// Counted: so many were counted.
	Counted Reason = "counted"
	// Fell: fewer were counted for long enough.
	Fell Reason = "fell"
	// Rose: more than ever were counted for long enough.
	Rose Reason = "rose"
	// NodeNotReady: what the Node's status counts is old.
	NodeNotReady Reason = "node-not-ready"
	// NoSource: the Node says nothing about devices of the class.
	NoSource Reason = "no-source"
	// NotEvaluated: the class's expression failed.
	NotEvaluated Reason = "not-evaluated"
	// NotListed: the ResourceSlices are not known yet.
	NotListed Reason = "not-listed"
	// Overridden: the configuration says how many to expect.
	Overridden Reason = "overridden"
	// Remembered: the Node had more itself.
	Remembered Reason = "remembered"
	// OfPeers: other Nodes of its group have more.
	OfPeers Reason = "of-peers"
	// Grouped: the group that it is in.
	Grouped Reason = "grouped"
	// Ungrouped: it lacks a label by which nodes are grouped.
	Ungrouped Reason = "ungrouped"
	// Dropped: no class has the label.
	Dropped Reason = "dropped"
)

// Ruling is what a label should be, and why.
type Ruling struct {
	Key string
	// Value is empty if the label should not be there.
	Value  string
	Reason Reason
}

// Memory is since when the cause of a label is missing, by the label's key; by that of
// an expected count, since when more are counted.
type Memory map[string]time.Time

// Verdict is what becomes of a Node.
type Verdict struct {
	// Rulings are one for each label that is ours, sorted by key.
	Rulings []Ruling
	// Memory is to be given to the next decision.
	Memory Memory
	// Again is when time alone changes the verdict; 0 if it does not.
	Again time.Duration
}

// Changes are the rulings that the labels do not fulfil.
func (v Verdict) Changes(labels map[string]string) []Ruling {
	return slices.DeleteFunc(slices.Clone(v.Rulings), func(r Ruling) bool { return labels[r.Key] == r.Value && (r.Value != "" || !has(labels, r.Key)) })
}

// Apply makes labels what the verdict says and touches no other.
func (v Verdict) Apply(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	for _, r := range v.Rulings {
		if r.Value == "" {
			delete(out, r.Key)
			continue
		}
		out[r.Key] = r.Value
	}
	return out
}

// Decide judges one Node. before is the memory of the last decision about it.
func Decide(v View, p Policy, before Memory, now time.Time) Verdict {
	if nodemark.OptedOut(v.Labels) {
		return Verdict{Rulings: []Ruling{}, Memory: Memory{}}
	}
	d := &decision{View: v, Policy: p, before: before, now: now, after: Memory{}}
	d.rule(nodemark.DCGMVersionLabel, d.dcgm)
	d.rule(nodemark.DriverInstalledLabel, d.driver)
	d.rule(nodemark.KataEnabledLabel, d.kata)
	for _, c := range p.Classes {
		d.count(c)
	}
	d.drop()
	slices.SortFunc(d.rulings, func(a, b Ruling) int { return strings.Compare(a.Key, b.Key) })
	return Verdict{Rulings: d.rulings, Memory: d.after, Again: d.again}
}

// decision is one run of Decide.
type decision struct {
	View
	Policy
	before, after Memory
	now           time.Time
	again         time.Duration
	rulings       []Ruling
}

func (d *decision) rule(key string, by func(key string) (string, Reason)) {
	value, reason := by(key)
	d.set(key, value, reason)
}

func (d *decision) set(key, value string, reason Reason) {
	d.rulings = append(d.rulings, Ruling{key, value, reason})
}

// missing says whether the cause of a label has been missing for the grace, which
// begins when that is seen first.
func (d *decision) missing(key string) bool {
	since, known := d.before[key]
	if !known || since.After(d.now) {
		since = d.now
	}
	rest := d.Grace - d.now.Sub(since)
	if rest <= 0 {
		return true
	}
	d.after[key] = since
	d.lookAgain(rest)
	return false
}

func (d *decision) lookAgain(after time.Duration) {
	if d.again == 0 || after < d.again {
		d.again = after
	}
}

func has(labels map[string]string, key string) bool {
	_, there := labels[key]
	return there
}
