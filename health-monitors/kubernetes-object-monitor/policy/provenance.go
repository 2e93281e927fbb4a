package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// clusterWide are Kubernetes' own kinds without a namespace, which tenants do not write. A
// file of policies does not show the scope of another kind.
var clusterWide = []string{"Node", "Namespace", "PersistentVolume", "CSINode", "VolumeAttachment", "ResourceSlice", "APIService", "CertificateSigningRequest"}

// Warnings returns who could make the policy act on a node that has no fault: by the
// objects that it watches, and by the text that it reads in them. A policy whose events are
// for the record only has none.
func (p *Policy) Warnings(monitors record.Strategy) (out []string) {
	if p.Report.StrategyOr(monitors) == record.PersistOnly {
		return nil
	}
	if p.anybodys() {
		out = append(out, fmt.Sprintf("accounts that can write objects of kind %s in any namespace decide the node that this policy acts on: name a namespace that no tenant writes to (policies.resource), or only store its events (%s)", p.Kind.Kind, recordOnly))
	}
	if p.ofPods() {
		out = append(out, fmt.Sprintf("accounts that can create a Pod make the kubelet of any node write Events about it, for example by a command or a volume that does not exist: require resource.regarding.kind == 'Node', or only store its events (%s)", recordOnly))
	}
	if fields := p.freeText(); len(fields) > 0 {
		out = append(out, fmt.Sprintf("the policy acts on text (%s) that programs and users can influence, even where a kubelet or a driver writes it: use types, reasons, statuses and codes instead, or only store its events (%s)", strings.Join(fields, ", "), recordOnly))
	}
	return out
}

const recordOnly = `processingStrategy = "PERSIST_ONLY"`

// anybodys reports whether anyone who may write objects of its kind in any namespace
// decides their content and the node that they name. They cannot if the kind has no
// namespace, the policy names a namespace, or it is about Events of the kubelet (which the
// admission policy of the chart lets nobody else write) and takes the node from the
// reporter.
func (p *Policy) anybodys() bool {
	switch {
	case p.node == nil, p.Namespace != "", slices.Contains(clusterWide, p.Kind.Kind):
		return false
	case p.Kind.Kind == "Event" && p.predicate.readsAny("reportingController", "reportingComponent") && p.node.readsAny("reportingInstance"):
		return false
	}
	return true
}

// ofPods reports whether it may act on Events that a kubelet writes about Pods, because it
// does not read which kind they regard. It is false where anybodys is true.
func (p *Policy) ofPods() bool {
	return p.Kind.Kind == "Event" && p.Namespace == "" && !p.anybodys() && !slices.ContainsFunc(p.predicate.reads, func(r reading) bool {
		return !r.lookup && len(r.path) > 1 && slices.Contains([]string{"regarding", "involvedObject"}, r.path[0].key) && r.path[1].key == "kind"
	})
}

// texts are fields that hold text of no fixed form, wherever they are in an object.
var texts = []string{"note", "message", "image", "imageID", "command", "args", "env", "envFrom"}

// named are parts of an object whose name a tenant chooses.
var named = []string{"metadata", "containers", "initContainers", "ephemeralContainers", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"}

// freeText lists what the predicate reads of text that somebody else than the writer of
// the object may have chosen, as paths.
func (p *Policy) freeText() (out []string) {
	for _, r := range p.predicate.reads {
		if at := r.textual(); at >= 0 && !r.touched && (r.lookup || !slices.Contains(clusterWide, p.Kind.Kind) || r.path[at].key != "name") {
			out = append(out, r.text(at))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// textual is the place in the path of a field that holds text; -1 if there is none.
func (r reading) textual() int {
	owner := ""
	for i, s := range r.path {
		switch {
		case s.each:
			continue
		case slices.Contains(texts, s.key), (s.key == "name" || s.key == "generateName") && slices.Contains(named, owner):
			return i
		}
		owner = s.key
	}
	return -1
}

// text writes the path up to a place as a person would.
func (r reading) text(to int) string {
	out := resourceName
	if r.lookup {
		out = r.kind.Kind
	}
	for _, s := range r.path[:to+1] {
		if s.each {
			out += "[]"
		} else {
			out += "." + s.key
		}
	}
	return out
}

// readsAny reports whether an expression reads one of these fields of the resource.
func (x *program) readsAny(fields ...string) bool {
	return slices.ContainsFunc(x.reads, func(r reading) bool {
		return !r.lookup && len(r.path) > 0 && slices.Contains(fields, r.path[0].key)
	})
}
