// Package record holds the stored health event record: its shape, who may
// write which part of it, which transitions are legal, and what the named
// selectors of the stores mean. It does no I/O and reads no clock.
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/extra"
)

// Metadata keys that carry the publisher's order and boot, and what the
// connector found.
const (
	// MetadataSeq is the publisher's durable counter, decimal.
	MetadataSeq = "seq"
	// MetadataSeqEpoch names the outbox that counts MetadataSeq.
	MetadataSeqEpoch = "seqEpoch"
	// MetadataSeqRuns names the run of that outbox which gave MetadataSeq, and the
	// runs before it: see NextRun.
	MetadataSeqRuns = "seqRuns"
	// MetadataBootID is the boot under which the publisher saw the fact.
	MetadataBootID = "bootID"
	// MetadataRepeatOf names the record that an event repeats, which the connector
	// made PERSIST_ONLY for that; its publisher did not.
	MetadataRepeatOf = "repeatOf"
	// MetadataRegister and a digit, 0 to 6, name the NVLink registers of an XID 74,
	// each 32 binary digits.
	MetadataRegister = "REG"
)

// OrderKeys are the metadata that record when, in its publisher's counting and under
// which boot, a fact was seen. They are kept and never replaced.
var OrderKeys = []string{MetadataSeq, MetadataSeqEpoch, MetadataSeqRuns, MetadataBootID}

// Strategy decides whether an event may change the cluster.
type Strategy string

// Strategies, by their names on the wire.
const (
	Process     Strategy = "PROCESS"
	PersistOnly Strategy = "PERSIST_ONLY"
)

// Action is the recommended action of an event, by its name on the wire.
type Action string

// Actions. REBOOT_NODE in configuration files is RestartVM.
const (
	ActionNone           Action = "NONE"
	ActionComponentReset Action = "COMPONENT_RESET"
	ActionContactSupport Action = "CONTACT_SUPPORT"
	ActionRunFieldDiag   Action = "RUN_FIELDDIAG"
	ActionRestartVM      Action = "RESTART_VM"
	ActionRestartBM      Action = "RESTART_BM"
	ActionReplaceVM      Action = "REPLACE_VM"
	ActionRunDCGMEUD     Action = "RUN_DCGMEUD"
	ActionCustom         Action = "CUSTOM"
	ActionUnknown        Action = "UNKNOWN"
)

// Entity is one thing a fault touches, for example {GPU_UUID GPU-...}.
type Entity struct {
	EntityType  string `json:"entitytype"`
	EntityValue string `json:"entityvalue"`
}

// Override asks to force or to skip a behaviour.
type Override struct {
	Force bool `json:"force"`
	Skip  bool `json:"skip"`
}

// HealthyMessage is the text of a healthy event, and of a condition without faults.
const HealthyMessage = "No Health Failures"

// Event is a health event as the connector accepted it. Field names in the stored
// document are the wire names in lower case, enums are stored by name.
type Event struct {
	Version                 uint32            `json:"version"`
	Agent                   string            `json:"agent"`
	ComponentClass          string            `json:"componentclass"`
	CheckName               string            `json:"checkname"`
	IsFatal                 bool              `json:"isfatal"`
	IsHealthy               bool              `json:"ishealthy"`
	Message                 string            `json:"message"`
	RecommendedAction       Action            `json:"recommendedaction"`
	ErrorCode               []string          `json:"errorcode"`
	EntitiesImpacted        []Entity          `json:"entitiesimpacted"`
	Metadata                map[string]string `json:"metadata"`
	GeneratedTimestamp      time.Time         `json:"generatedtimestamp"`
	NodeName                string            `json:"nodename"`
	QuarantineOverrides     *Override         `json:"quarantineoverrides"`
	DrainOverrides          *Override         `json:"drainoverrides"`
	ProcessingStrategy      Strategy          `json:"processingstrategy"`
	ID                      string            `json:"id"`
	CustomRecommendedAction string            `json:"customrecommendedaction"`
	// Unread are the fields of the wire event that the connector which took it did not
	// know, as they came.
	Unread []byte `json:"unread,omitempty"`
	// Extra is what the document has that this version does not know.
	Extra *extra.Extra `json:"-"`
}

// EffectiveAction is the name that routes a repair: the custom name when the
// action is CUSTOM, else the action as this version understands it.
func (e Event) EffectiveAction() Action {
	a := e.Action()
	if a == ActionCustom && e.CustomRecommendedAction != "" {
		return Action(e.CustomRecommendedAction)
	}
	return a
}

// Seq returns the publisher's counter and its epoch; ok is false when the
// publisher gave none or a malformed one.
func (e Event) Seq() (seq uint64, epoch string, ok bool) {
	epoch = e.Metadata[MetadataSeqEpoch]
	seq, err := strconv.ParseUint(e.Metadata[MetadataSeq], 10, 64)
	return seq, epoch, err == nil && epoch != ""
}

// BootID is the boot under which the publisher saw the fact, or empty.
func (e Event) BootID() string { return e.Metadata[MetadataBootID] }

// FromProto converts a wire event. Unknown enum numbers become UNKNOWN and
// PERSIST_ONLY; the connector decides what to count.
func FromProto(p *protos.HealthEvent) Event {
	e := Event{
		Version: p.GetVersion(), Agent: p.GetAgent(), ComponentClass: p.GetComponentClass(),
		CheckName: p.GetCheckName(), IsFatal: p.GetIsFatal(), IsHealthy: p.GetIsHealthy(),
		Message: p.GetMessage(), RecommendedAction: actionOf(p.GetRecommendedAction()),
		ErrorCode: slices.Clone(p.GetErrorCode()), Metadata: maps.Clone(p.GetMetadata()),
		NodeName: p.GetNodeName(), ProcessingStrategy: strategyOf(p.GetProcessingStrategy()),
		ID: p.GetId(), CustomRecommendedAction: p.GetCustomRecommendedAction(),
		QuarantineOverrides: overrideOf(p.GetQuarantineOverrides()), DrainOverrides: overrideOf(p.GetDrainOverrides()),
		Unread: bytes.Clone(p.ProtoReflect().GetUnknown()),
	}
	if ts := p.GetGeneratedTimestamp(); ts != nil {
		e.GeneratedTimestamp = ts.AsTime().UTC().Truncate(time.Microsecond)
	}
	for _, x := range p.GetEntitiesImpacted() {
		e.EntitiesImpacted = append(e.EntitiesImpacted, Entity{x.GetEntityType(), x.GetEntityValue()})
	}
	return e
}

// ToProto converts back to the wire. An action that the wire does not know is UNKNOWN
// there, with its text in the metadata.
func ToProto(e Event) *protos.HealthEvent {
	p := &protos.HealthEvent{
		Version: e.Version, Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName,
		IsFatal: e.IsFatal, IsHealthy: e.IsHealthy, Message: e.Message,
		RecommendedAction: ActionNumber(e.RecommendedAction), ErrorCode: slices.Clone(e.ErrorCode),
		Metadata: maps.Clone(e.Metadata), NodeName: e.NodeName,
		ProcessingStrategy: StrategyNumber(e.ProcessingStrategy), Id: e.ID,
		CustomRecommendedAction: e.CustomRecommendedAction,
	}
	if !e.RecommendedAction.Known() {
		p.RecommendedAction = protos.RecommendedAction_UNKNOWN
		if text := string(e.RecommendedAction); text != "" {
			p.Metadata = with(p.Metadata, MetadataUnknownAction, text)
		}
	}
	if len(e.Unread) > 0 {
		p.ProtoReflect().SetUnknown(bytes.Clone(e.Unread))
	}
	if !e.GeneratedTimestamp.IsZero() {
		p.GeneratedTimestamp = timestamppb.New(e.GeneratedTimestamp)
	}
	if o := e.QuarantineOverrides; o != nil {
		p.QuarantineOverrides = &protos.BehaviourOverrides{Force: o.Force, Skip: o.Skip}
	}
	if o := e.DrainOverrides; o != nil {
		p.DrainOverrides = &protos.BehaviourOverrides{Force: o.Force, Skip: o.Skip}
	}
	for _, x := range e.EntitiesImpacted {
		p.EntitiesImpacted = append(p.EntitiesImpacted, &protos.Entity{EntityType: x.EntityType, EntityValue: x.EntityValue})
	}
	return p
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// ActionNumber is the wire number of an action; names the wire does not know
// (custom actions) are CUSTOM.
func ActionNumber(a Action) protos.RecommendedAction {
	if n, ok := protos.RecommendedAction_value[string(a)]; ok {
		return protos.RecommendedAction(n)
	}
	return protos.RecommendedAction_CUSTOM
}

// StrategyNumber is the wire number of a strategy.
func StrategyNumber(s Strategy) protos.ProcessingStrategy {
	if s == Process {
		return protos.ProcessingStrategy_PROCESS
	}
	return protos.ProcessingStrategy_PERSIST_ONLY
}

// ParseStrategy reads a strategy from a flag or file.
func ParseStrategy(s string) (Strategy, error) {
	switch Strategy(s) {
	case Process, PersistOnly:
		return Strategy(s), nil
	}
	earlier := map[string]string{
		"EXECUTE_REMEDIATION": ": use PROCESS in place of this value of the earlier NVSentinel",
		"STORE_ONLY":          ": use PERSIST_ONLY in place of this value of the earlier NVSentinel",
		"STORE_AND_ANALYSE":   ": this value of the earlier NVSentinel has no replacement, PERSIST_ONLY events are not analyzed",
	}
	return "", fmt.Errorf("processing strategy %q is not PROCESS or PERSIST_ONLY%s", s, earlier[s])
}

// Validate returns what is wrong with a strategy of a configuration.
func (s Strategy) Validate() error {
	_, err := ParseStrategy(string(s))
	return err
}

// ParseAction reads an action's name from configuration; REBOOT_NODE is
// accepted as RESTART_VM.
func ParseAction(s string) (Action, error) {
	if s == "REBOOT_NODE" {
		return ActionRestartVM, nil
	}
	if _, ok := protos.RecommendedAction_value[s]; ok {
		return Action(s), nil
	}
	return "", fmt.Errorf("recommended action %q is not one of %v", s, slices.Sorted(maps.Keys(protos.RecommendedAction_value)))
}

func actionOf(a protos.RecommendedAction) Action {
	if name, ok := protos.RecommendedAction_name[int32(a)]; ok {
		return Action(name)
	}
	return ActionUnknown
}

func strategyOf(s protos.ProcessingStrategy) Strategy {
	if s == protos.ProcessingStrategy_PROCESS {
		return Process
	}
	return PersistOnly
}

func overrideOf(o *protos.BehaviourOverrides) *Override {
	if o == nil {
		return nil
	}
	return &Override{Force: o.GetForce(), Skip: o.GetSkip()}
}

// Digest identifies an event's content: two events with one id are the same
// event exactly when their digests are equal.
func Digest(e Event) string {
	var buffer [1024]byte // of nearly every event
	sum := sha256.Sum256(canonical(buffer[:0], e))
	return hex.EncodeToString(sum[:])
}

// Content identifies what the connector accepted, whatever the event became since:
// two records with one id are the same exactly when their contents are equal.
// It is what a store compares.
func Content(r Record) string {
	if r.Accepted != "" {
		return r.Accepted
	}
	return Digest(r.Event)
}
