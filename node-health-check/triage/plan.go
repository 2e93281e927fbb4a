package triage

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// Verb is what an Act does.
type Verb string

// The verbs.
const (
	// Begin takes the node's lease for LeaseFor and makes the step's remediation.
	Begin Verb = "begin"
	// NotifyRemediator a remediation's remediator that it is given up.
	NotifyRemediator Verb = "tell"
	// Remove a remediation.
	Remove Verb = "remove"
	// Delay notes on a remediation that its node is healthy since now, and Undelay
	// takes that back.
	Delay   Verb = "delay"
	Undelay Verb = "undelay"
	// Confirm takes the annotation from the Node by which a person confirmed its health.
	Confirm Verb = "confirm"
	// Age counts a remediation as an old one and notes that.
	Age Verb = "age"
	// Renew the node's lease for LeaseFor, Release drops it.
	Renew   Verb = "renew"
	Release Verb = "release"
)

// describe returns what an act of the verb does.
func (v Verb) describe() string {
	return map[Verb]string{
		Begin: "starting a remediation", NotifyRemediator: "reporting the timeout to a remediator", Remove: "removing a remediation",
		Delay: "recording the start of the healthy delay", Undelay: "recording the end of the healthy delay", Confirm: "removing the manual confirmation from a node",
		Age: "recording that a remediation is old", Renew: "renewing a node's lease", Release: "releasing a node's lease",
	}[v]
}

// Act is one thing to do. An act that fails is decided about again by the next pass.
type Act struct {
	Do   Verb
	Node string
	// Of is the Node, for Begin and Confirm.
	Of *corev1.Node
	// Step of Begin.
	Step *Step
	// Remediation of NotifyRemediator, Remove, Delay, Undelay and Age.
	Remediation *Remediation
	// NoRemediationLeft: the lease is released since its node has no remediation left.
	NoRemediationLeft bool
	// LeaseFor is how long the lease lives without renewal.
	LeaseFor time.Duration
}

// Notice is something people should see as an Event on the check.
type Notice struct {
	// Key of a notice that is reported once, and again only after a pass without it.
	// A notice without a key is reported every time.
	Key             string
	Warning         bool
	Reason, Message string
}

// Reasons of notices.
const (
	NoticeDetected     = "DetectedUnhealthy"
	NoticeCreated      = "RemediationCreated"
	NoticeRemoved      = "RemediationRemoved"
	NoticeSkipped      = "RemediationSkipped"
	NoticeInvalidLabel = "InvalidNodeLabel"
	NoticeNoneLeft     = "NoTemplateLeft"
	NoticeDisabled     = "Disabled"
	NoticeEnabled      = "Enabled"
	NoticeStorm        = "StormRecoveryStarted"
	NoticeStormOver    = "StormRecoveryEnded"
	NoticeLease        = "NodeLeaseReleased"
	NoticeFailed       = "RemediationActionFailed"
)

// Ended is a remediation whose node is healthy again and which is gone.
type Ended struct {
	Node, Kind, Namespace string
	Started               time.Time
}

// Plan is what a pass does.
type Plan struct {
	// Acts in the order in which they are begun; all are independent of each other.
	Acts []Act
	// Notices of what was decided; those of what was done are Close's.
	Notices []Notice
	// Ended remediations, for the metrics.
	Ended []Ended
	// Again is after how long the next pass is due, if nothing changes; 0 is never.
	Again time.Duration
	// Census and Blocker explain what was not begun.
	Census  Census
	Blocker Blocker
	// Health of the nodes by name.
	Health map[string]Finding

	nodes   map[string]v1alpha1.UnhealthyNode
	storm   Storm // before anything was begun
	noted   map[string]bool
	blocked map[Blocker]int // nodes for which nothing begins, by the reason
	// waiting is why nothing begins for a node, if that is the node's own reason.
	waiting map[string]string
}

// again asks for a pass after d.
func (p *Plan) again(d time.Duration) {
	if d > 0 && (p.Again == 0 || d < p.Again) {
		p.Again = d
	}
}

func (p *Plan) act(a Act) { p.Acts = append(p.Acts, a) }

func (p *Plan) notice(key, reason, message string) {
	p.note(Notice{Key: key, Reason: reason, Message: message})
}

func (p *Plan) warn(key, reason, message string) {
	p.note(Notice{Key: key, Warning: true, Reason: reason, Message: message})
}

// note adds a notice, one of a key.
func (p *Plan) note(n Notice) {
	if n.Key == "" || !p.noted[n.Key] {
		p.Notices, p.noted[n.Key] = append(p.Notices, n), true
	}
}
