package policy

import (
	"fmt"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// clusterWide are Kubernetes' own kinds without a namespace, which tenants do not
// write. What another kind is, a file of policies does not say.
var clusterWide = []string{"Node", "Namespace", "PersistentVolume", "CSINode", "VolumeAttachment", "ResourceSlice", "APIService", "CertificateSigningRequest"}

// Doubt says who could have the policy act on a node of their choice: whoever may
// write objects of its kind in any namespace decides what they say and which node
// they name. It is empty where they cannot: the kind has no namespace, the policy
// names a namespace, its events are for the record only, or it is about Events of
// the kubelet (which the admission policy of the chart lets nobody else write) and
// takes the node from who reports.
func (p *Policy) Doubt(monitors record.Strategy) string {
	switch {
	case p.node == nil, p.Namespace != "", slices.Contains(clusterWide, p.Kind.Kind), p.Report.StrategyOr(monitors) == record.PersistOnly:
		return ""
	case p.Kind.Kind == "Event" && p.predicate.readsAny("reportingController", "reportingComponent") && p.node.readsAny("reportingInstance"):
		return ""
	}
	return fmt.Sprintf("whoever may write objects of kind %s in any namespace decides which node this acts on: name a namespace that no tenant writes in (policies.resource), or have it for the record only (processingStrategy = \"PERSIST_ONLY\")", p.Kind.Kind)
}

// readsAny says whether an expression reads one of these fields of the resource.
func (x *program) readsAny(fields ...string) bool {
	return slices.ContainsFunc(x.reads, func(r reading) bool {
		return !r.lookup && len(r.path) > 0 && slices.Contains(fields, r.path[0].key)
	})
}
