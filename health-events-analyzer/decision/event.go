package decision

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// Metadata of derived events.
const (
	// metadataSources lists the record ids of the newest sources, oldest first.
	metadataSources = "sources"
	// metadataOmitted counts older sources that are not listed.
	metadataOmitted = "sourcesOmitted"
	// metadataSubject is what the fault is about.
	metadataSubject = "subject"
	// metadataClear is the rule's clear.
	metadataClear = "clear"
	// metadataWindow is the rule's window.
	metadataWindow = "window"
	// metadataRecovers is the record id of the derived fault that is over.
	metadataRecovers = "recovers"
	// metadataScope is the rule's scope if that is the cluster.
	metadataScope = "scope"
)

// maxSources of 36 bytes and a comma fit into one metadata value.
const maxSources = 100

// namespace of the ids of derived events.
var namespace = uuid.MustParse("6f1ed0c5-6c1b-4a54-9d0e-2f6d4f7a3b52")

func id(parts ...string) string {
	return uuid.NewSHA1(namespace, []byte(strings.Join(parts, "\x00"))).String()
}

// Event is the fault that a Matched finding derives; strategy is that of rules which state none.
// Its id is a function of rule, node (not with a cluster's rule), subject and window, and of the
// fault published before in that window: to derive it again publishes nothing new.
func (f Finding) Event(strategy record.Strategy) record.Event {
	t, r := f.Trigger.Record.Event, f.Rule
	window, whose := strconv.FormatInt(f.Trigger.At.UnixNano()/int64(r.Window), 10), t.NodeName
	if r.Scope == rule.OnCluster {
		whose = ""
	}
	if r.Strategy != "" {
		strategy = r.Strategy
	}
	e := record.Event{
		Version: t.Version, ID: id("fault", r.Name, whose, f.Subject, window, f.previous),
		Agent: record.AnalyzerAgent, ComponentClass: t.ComponentClass, CheckName: r.Name, NodeName: t.NodeName,
		IsFatal: r.IsFatal(), Message: r.Text(), RecommendedAction: r.Action, ErrorCode: slices.Clone(t.ErrorCode),
		GeneratedTimestamp: f.Trigger.At, ProcessingStrategy: strategy,
		Metadata: map[string]string{
			metadataSubject: f.Subject, metadataClear: string(r.Clear), metadataWindow: r.Window.String(),
		},
	}
	for _, x := range t.EntitiesImpacted {
		// The registers of XID 74 are no things that can be faulty.
		if !strings.HasPrefix(x.EntityType, "REG") {
			e.EntitiesImpacted = append(e.EntitiesImpacted, x)
		}
	}
	f.cite(&e)
	if r.Scope == rule.OnCluster {
		e.Metadata[metadataScope] = string(r.Scope)
		number(&e, uint64(f.Trigger.At.UnixNano()))
	}
	return e
}

// cite names the sources, and the boot of the node's newest that has one.
func (f Finding) cite(e *record.Event) {
	named := map[string]bool{}
	sources := slices.DeleteFunc(slices.Clone(f.Sources), func(s *Fact) bool { // a record may stand for several
		again := named[s.Record.ID]
		named[s.Record.ID] = true
		return again
	})
	if omitted := len(sources) - maxSources; omitted > 0 {
		sources = sources[omitted:]
		e.Metadata[metadataOmitted] = strconv.Itoa(omitted)
	}
	var ids []string
	for _, s := range sources {
		ids = append(ids, s.Record.ID)
		if boot := s.Record.Event.BootID(); boot != "" && s.Record.Event.NodeName == e.NodeName {
			e.Metadata[record.MetadataBootID] = boot
		}
	}
	e.Metadata[metadataSources] = strings.Join(ids, ",")
}

// Event is the recovery of a derived fault. It bears the fault's strategy.
func (c Clearing) Event() record.Event {
	d := c.Fault.Record.Event
	e := d
	e.ID = id("recovery", c.Fault.Record.ID)
	e.IsHealthy, e.IsFatal, e.RecommendedAction = true, false, record.ActionNone
	e.Message = fmt.Sprintf("All causes of %s have recovered", d.CheckName)
	e.GeneratedTimestamp = c.At
	e.QuarantineOverrides, e.DrainOverrides = nil, nil
	e.Metadata = maps.Clone(d.Metadata)
	delete(e.Metadata, record.MetadataBootID)
	e.Metadata[metadataRecovers] = c.Fault.Record.ID
	if c.Fault.ofCluster() {
		number(&e, max(uint64(c.At.UnixNano()), c.Fault.Record.Seq+1))
	}
	return e
}
