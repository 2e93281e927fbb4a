// Package labeling decides which labels a node should have that show what is on it: the
// driver, the version of DCGM, Kata, and how many devices of a class it has and should
// have. It does no I/O and reads no clock.
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
	// DCGMAnywhere and DriverAnywhere mean that there is such a pod on any Node.
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

// Policy is the operator's configuration.
type Policy struct {
	// Grace is how long a pod must be gone, or a count be lower, or higher than ever,
	// to be believed.
	Grace time.Duration
	// RequireReady asks for a Ready DCGM pod before its version is written.
	RequireReady bool
	// AssumeDCGM is the version on GPU nodes, whatever pods there are; empty looks
	// for pods.
	AssumeDCGM string
	// AssumeDriver means that GPU nodes have the driver.
	AssumeDriver bool
	// KataLabel is a label that marks Kata in addition to Kata's own; may be empty.
	KataLabel string
	// Classes of devices to count.
	Classes []Class
}

// Reason is why a label is as it is. It is the label value of the changes' counter.
type Reason string

// Reasons.
const (
	// OptedOut: the Node has an opt-out label (`nvsentinel.dgxc.nvidia.com/managed=false`), so none of its labels
	// is changed. Action: none.
	OptedOut Reason = "opted-out"
	// Seen: a pod on the Node, or for Kata a label of the Node, shows the value, so the label has it. Action:
	// none.
	Seen Reason = "seen"
	// Assumed: the Node has GPUs and the configuration sets the value (`--assume-dcgm-version` or
	// `--assume-driver-installed`). Action: none.
	Assumed Reason = "assumed"
	// Absent: no pod of DCGM or of the driver is on the Node and the label is not there, so nothing changes.
	// Action: none.
	Absent Reason = "absent"
	// NotReady: a pod of DCGM or of the driver is on the Node and was not Ready yet, so its label is not written.
	// Action: none while the pod starts. If it lasts, find out why the pod is not Ready (`kubectl get pods -A
	// --field-selector spec.nodeName=<node>`).
	NotReady Reason = "not-ready"
	// NoVersion: the image of the DCGM pod has no version in its tag, so the label stays as it is. Action: use an
	// image with a version (`dcgm:4.5.2-...`), or set `--assume-dcgm-version`.
	NoVersion Reason = "no-version"
	// NoneAnywhere: none of the namespaces of `--pod-namespaces` has a pod of DCGM or of the driver, which points
	// to a wrong name or a missing right, so the label stays as it is. Action: check `--pod-namespaces`,
	// `--dcgm-app-label` and `--driver-app-label`. If the software was removed from all nodes, remove the label
	// (`kubectl label nodes --all nvsentinel.dgxc.nvidia.com/dcgm.version-`).
	NoneAnywhere Reason = "no-pods-in-cluster"
	// Waits: a pod is gone, or the number of devices differs, and `--grace-period` is not over, so the label stays as it
	// is. Action: none.
	Waits Reason = "grace-period"
	// Gone: the pod of DCGM or of the driver has been gone for `--grace-period`, so the label is removed. Action: none.
	Gone Reason = "gone"
	// Counted: the label has the number of devices that the Node offers. Action: none.
	Counted Reason = "counted"
	// Fell: the Node has offered fewer devices than before for `--grace-period`, so the lower number is written. Action:
	// find out which devices are missing (`nvidia-smi` on the node, the log of the device plugin) and repair the
	// node.
	Fell Reason = "decreased"
	// Rose: the Node has offered more devices than any Node of its group had for `--grace-period`, so the higher number
	// is written. Action: none if devices were added or are shared from now on. Otherwise check the device plugin
	// of the node.
	Rose Reason = "increased"
	// NodeNotReady: the Node is not Ready and the numbers in its status are old, so the labels of the count stay
	// as they are. Action: none.
	NodeNotReady Reason = "node-not-ready"
	// NoSource: the expression of the class gives no number, because the Node does not offer such devices, so the
	// labels of the count stay as they are. Action: none if the node has no such devices. Otherwise check its
	// device plugin and `currentExpression` of the class.
	NoSource Reason = "no-source"
	// NotEvaluated: the expression of the class failed, so the labels of the count stay as they are. Action:
	// correct `currentExpression` of the class in the file of `--expected-device-counts-config-file`. The log has
	// the error.
	NotEvaluated Reason = "not-evaluated"
	// NotListed: the ResourceSlices have not been listed yet, so the labels of the count stay as they are. Action:
	// none after a start. If it lasts, check the right of the labeler to list and watch ResourceSlices.
	NotListed Reason = "not-listed"
	// Overridden: an entry of `expectedCountOverrides` matches the Node, so the label of the expected count has
	// its number. Action: none.
	Overridden Reason = "overridden"
	// Remembered: the Node had more devices before, so the label of the expected count keeps that number. Action:
	// repair the missing devices. If the number is wrong, run `kubectl label node <node>
	// nvsentinel.dgxc.nvidia.com/gpu.count.expected-`.
	Remembered Reason = "remembered"
	// OfPeers: other Nodes of the group have more devices, so the label of the expected count has their number.
	// Action: repair the missing devices. If the node is meant to have fewer, add an entry to
	// `expectedCountOverrides`.
	OfPeers Reason = "from-peers"
	// Grouped: the Node has all labels by which nodes are grouped, so the label of the group names its group.
	// Action: none.
	Grouped Reason = "grouped"
	// Ungrouped: the Node lacks a label of `groupingLabels`, so the label of the group stays as it is and the Node
	// is compared with no other. Action: none. To have it compared, add the missing label.
	Ungrouped Reason = "ungrouped"
	// Dropped: no enabled class has the label, so it is removed. Action: none.
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

// Apply returns the labels as the verdict sets them, and changes no other.
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

// Decide evaluates one Node. before is the memory of the last decision about it.
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

// missing reports whether the cause of a label has been missing for the grace, which
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
	d.requeueAfter(rest)
	return false
}

func (d *decision) requeueAfter(after time.Duration) {
	if d.again == 0 || after < d.again {
		d.again = after
	}
}

func has(labels map[string]string, key string) bool {
	_, there := labels[key]
	return there
}
