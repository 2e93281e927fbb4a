// Package forwardpolicy decides which records of a node's connector the gateway passes
// on to the store. A connector may be in the hands of anyone who is root on its node:
// every record is checked as if no connector had seen it, and the node is that of the
// connector's token, whatever the record contains. It does no I/O and reads no clock.
package forwardpolicy

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
)

const (
	// maxIdentity bounds one name of a machine, in bytes.
	maxIdentity = 512
	// maxName bounds the name of a strategy, in bytes.
	maxName = 64
	// MaxUnknown bounds what a record has that the gateway does not know, in bytes.
	MaxUnknown = 64 << 10
)

// Reason is why a record is refused. It is the label value of a counter.
type Reason string

// Reasons of a refusal.
const (
	// ForeignNode: the record is about another node than that of its connector, so the gateway refuses it
	// permanently. Action: cordon the node of the connector (`kubectl cordon <node>`) and find out which process wrote
	// the record, because no connector brings such a record by itself.
	ForeignNode Reason = "foreign-node"
	// Unspoken: the record names an agent with `clusterWide = true` and comes without the token of that agent, so
	// the gateway refuses it permanently. Action: find out which process on the node wrote it. A monitor with that
	// agent needs its own projected token.
	Unspoken Reason = "agent-without-token"
	// ForeignAgent: the token with the record belongs to another agent, or the check to another agent, so the
	// gateway refuses the record permanently. Action: correct `account` or `checks` in `[[publishers.agent]]` of the
	// gateway.
	ForeignAgent Reason = "agent-of-another-account"
	// HasStatus: the record has a status or a revision, which a connector never sets, so the gateway refuses it
	// permanently. Action: cordon the node of the connector (`kubectl cordon <node>`) and find out which process wrote
	// the record.
	HasStatus Reason = "unexpected-status"
	// BadID: the id of the record is not a random UUID (version 4 or 7), so the gateway refuses it permanently.
	// Action: have the monitor give a random id or none. If it does already, find out which process on the node
	// wrote the record.
	BadID Reason = "invalid-id"
	// Newer: the recovery needs a newer version of the gateway, so the gateway refuses it permanently. Action:
	// upgrade the gateways before the connectors. Faults that stay open because of it end with `nvsentinel clear
	// <node> <record>`.
	Newer Reason = "newer-version-required"
	// Malformed: the record breaks a bound that the connector checks too, so the gateway refuses it permanently.
	// Action: run the same version of connectors and gateways. If you do already, find out which process on the
	// node wrote the record.
	Malformed Reason = "malformed"
)

// Reasons lists every reason, in a fixed order.
func Reasons() []Reason {
	return []Reason{ForeignNode, Unspoken, ForeignAgent, HasStatus, BadID, Newer, Malformed}
}

// Refusal is why a record can never be passed on.
type Refusal struct {
	Reason  Reason
	Problem string
}

// Error is the problem.
func (r *Refusal) Error() string { return r.Problem }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// Caller is who brings records, according to verified tokens.
type Caller struct {
	// Node is that of the connector's pod.
	Node string
	// Publisher is the publisher on whose behalf the connector calls, by the
	// publisher's own token; nil when it carries its spool.
	Publisher *authz.Caller
}

// Policy is what an operator configures for publishers.
type Policy struct{ Agents []authz.Agent }

// Enter decides whether the caller's publisher, if it has one, may publish events about all
// nodes: its account is that of a cluster-wide agent, and its pod runs on the
// connector's node.
func (p Policy) Enter(c Caller) *authz.Refusal {
	if c.Publisher == nil {
		return nil
	}
	policy := p.of(c)
	if refusal := policy.Enter(*c.Publisher); refusal != nil {
		return refusal
	}
	if !policy.ClusterWide(*c.Publisher) {
		return &authz.Refusal{Reason: authz.ForeignAgent, Problem: fmt.Sprintf(
			"%s is not the account of a cluster-wide agent: configure it with clusterWide in publishers.agent of the gateway", c.Publisher.Account)}
	}
	return nil
}

func (p Policy) of(c Caller) authz.Policy {
	return authz.Policy{Node: c.Node, RequireToken: true, Agents: p.Agents}
}

// Pass returns a record as it goes to the store, or why it does not. What is
// stored is made here from what was brought: order, expiry, bounds. The content by
// which the store knows the record again stays the same.
func (p Policy) Pass(c Caller, r record.Record, now time.Time) (record.Record, *Refusal) {
	if refusal := p.speak(c, r.Event); refusal != nil {
		return r, refusal
	}
	if !r.Status.Blank() || r.Revision != 0 { // a status with something unknown is not blank
		return r, refuse(HasStatus, "record %.64q already has a status", r.ID)
	}
	if refusal := checkID(c, r.ID); refusal != nil {
		return r, refusal
	}
	for _, name := range []string{r.Node.UID, r.Node.ProviderID, r.Node.SystemUUID, r.Node.BootID} {
		if len(name) > maxIdentity {
			return r, refuse(Malformed, "the machine name of record %s has %d bytes, at most %d are allowed", r.ID, len(name), maxIdentity)
		}
	}
	if digest, err := hex.DecodeString(r.Accepted); r.Accepted != "" && (err != nil || len(digest) != 32) {
		return r, refuse(Malformed, "the digest of record %s is invalid", r.ID)
	}
	if n := r.Extra.Bytes() + r.Event.Extra.Bytes() + len(r.Event.Unread); n > MaxUnknown {
		return r, refuse(Malformed, "record %s has %d bytes of unknown fields, at most %d are allowed", r.ID, n, MaxUnknown)
	}
	content := record.Content(r)
	ours, refusal := forThisVersion(r)
	if refusal != nil {
		return r, refusal
	}
	event, refusal := normalised(ours)
	if refusal != nil {
		return r, refusal
	}
	out := record.Record{
		ID: r.ID, CreatedAt: r.CreatedAt, Node: r.Node, Accepted: r.Accepted, Event: event, MinVersion: ours.MinVersion, Extra: r.Extra,
	}
	if record.Content(out) != content {
		out.Accepted = content
	}
	if out.CreatedAt.After(now) || out.CreatedAt.IsZero() {
		out.CreatedAt = now
	}
	if seq, epoch, ok := event.Seq(); ok && seq <= math.MaxInt64 {
		out.Seq, out.SeqEpoch = seq, epoch
	}
	out.Expire(now)
	return out, nil
}

// forThisVersion is a record that asks for programs of a newer version as it may be handled
// without them, since a node must not choose what is left alone and never expires: a fault
// is a person's, with what it asked for in its metadata. A recovery may end less than this
// version takes it to, and is refused.
func forThisVersion(r record.Record) (record.Record, *Refusal) {
	why := record.NeedsNewer(r)
	if why == "" {
		return r, nil
	}
	if r.Event.IsHealthy {
		return r, refuse(Newer, "recovery %s: %s, upgrade the gateways before the connectors", r.ID, why)
	}
	r.Event.RecommendedAction = record.Action(fmt.Sprintf("%s of record version %d", r.Event.RecommendedAction, r.MinVersion))
	r.MinVersion = record.Version
	return r, nil
}

// normalised is the event as a connector would have accepted it, with what only a newer
// version knows: a strategy by its name, and what has no place in the wire's message.
func normalised(r record.Record) (record.Event, *Refusal) {
	event, _, err := admission.Normalise(record.ToProto(r.Event), "")
	if err != nil {
		return event, refuse(Malformed, "record %s: %s", r.ID, err)
	}
	event.Extra = r.Event.Extra
	if s := r.Event.ProcessingStrategy; s != record.Process && s != record.PersistOnly && strategyName(s) {
		event.ProcessingStrategy = s
	}
	return event, nil
}

// strategyName reports whether a strategy that is not known may be one of a newer version.
func strategyName(s record.Strategy) bool {
	return s != "" && len(s) <= maxName && strings.Trim(string(s), "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// speak decides whether the caller may bring an event of this agent about this node.
func (p Policy) speak(c Caller, e record.Event) *Refusal {
	if c.Publisher != nil {
		if _, refusal := p.of(c).Speak(&authz.Owners{}, *c.Publisher, e.Agent, e.CheckName); refusal != nil {
			return refuse(ForeignAgent, "%s", refusal.Problem)
		}
		return nil
	}
	if e.NodeName != c.Node {
		return refuse(ForeignNode, "the record is about node %.64q, and its connector is the one of node %q", e.NodeName, c.Node)
	}
	for _, a := range p.Agents {
		if a.ClusterWide && a.Name == e.Agent {
			return refuse(Unspoken, "agent %q is cluster-wide: its events require its own token, and a node connector must not forward them", e.Agent)
		}
	}
	return nil
}

// checkID admits ids that nobody could have guessed before: a derived fault's id is
// a function of what it is derived from, and only publishers that derive have such.
func checkID(c Caller, id string) *Refusal {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed == uuid.Nil || parsed.String() != id {
		return refuse(BadID, "%.64q is not a UUID", id)
	}
	if v := parsed.Version(); c.Publisher == nil && v != 4 && v != 7 {
		return refuse(BadID, "the id %s is a UUID of version %d: a node publisher must use random ones of version 7 or 4", id, v)
	}
	return nil
}
