package policy

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventFields are the names that one version of the Events API gives to what the
// recorders of that and of the other version fill in.
type eventFields struct{ seen, source, reporter string }

// eventKinds are the two versions of Kubernetes' Events.
var eventKinds = map[schema.GroupVersionKind]eventFields{
	{Version: "v1", Kind: "Event"}:                         {"lastTimestamp", "source", "reportingComponent"},
	{Group: "events.k8s.io", Version: "v1", Kind: "Event"}: {"deprecatedLastTimestamp", "deprecatedSource", "reportingController"},
}

// Fields of an Event that both versions name alike.
const (
	eventTime         = "eventTime"
	reportingInstance = "reportingInstance"
)

// Normal is an object as expressions see it: an Event says when it was seen last
// and who reported it, whichever recorder wrote it. The one that kubelets use
// leaves eventTime null and counts in lastTimestamp, the newer one leaves that null
// and counts in series; kubelets before 1.28 name themselves in the source alone.
// Other objects stay as they are. The object given is not changed.
func Normal(kind schema.GroupVersionKind, object map[string]any) map[string]any {
	fields, ok := eventKinds[kind]
	if !ok || object == nil {
		return object
	}
	out := maps.Clone(object)
	if at := lastSeen(object, fields); at != nil {
		out[eventTime], out[fields.seen] = at, at
	}
	source, _ := object[fields.source].(map[string]any)
	for to, from := range map[string]string{fields.reporter: "component", reportingInstance: "host"} {
		if said, _ := object[to].(string); said == "" && source[from] != nil {
			out[to] = source[from]
		}
	}
	return out
}

// lastSeen is the latest of the times at which an Event was seen; the time of its
// creation if it says none; nil if it has no time at all.
func lastSeen(object map[string]any, fields eventFields) any {
	series, _ := object["series"].(map[string]any)
	metadata, _ := object[metadataKey].(map[string]any)
	var latest time.Time
	var out any
	for _, said := range []any{series["lastObservedTime"], object[fields.seen], object[eventTime]} {
		text, _ := said.(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(latest) {
			latest, out = at, said
		}
	}
	if out == nil {
		return metadata["creationTimestamp"]
	}
	return out
}
