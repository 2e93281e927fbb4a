package nodemark

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ReleasePrefix begins the annotation by which a person releases a node: the rest of
// the key is the session's id, the value is the person's user name, ": ", and the
// reason. An admission policy refuses another name than the writer's own, and service
// accounts and nodes.
const ReleasePrefix = "release.nvsentinel.dgxc.nvidia.com/"

// Annotations that show who lifted a mark of a session, and what followed.
const (
	// LiftedByAnnotation holds the user name of who lifted the cordon of a session, or
	// removed a taint of it. The API server writes it in that same request, where it
	// serves MutatingAdmissionPolicy; fault-quarantine removes it.
	LiftedByAnnotation = "dgxc.nvidia.com/nvsentinel-lifted-by"
	// RestoredAnnotation holds a Restored, JSON, until the session ends. Written by
	// fault-quarantine.
	RestoredAnnotation = "dgxc.nvidia.com/nvsentinel-restored"
	// AnyoneReleasesAnnotation is True where fault-quarantine is configured so that
	// anyone who lifts a mark of the session releases the node. Written by fault-quarantine.
	AnyoneReleasesAnnotation = "dgxc.nvidia.com/nvsentinel-release-on-any-uncordon"
)

// Restored is how often marks of a session that were lifted were restored, when last,
// who had lifted them (empty if unknown) and which. Waiting: By lifted one since, which is
// not yet restored.
type Restored struct {
	Count   int          `json:"count"`
	At      time.Time    `json:"at"`
	By      string       `json:"by,omitempty"`
	Mark    ReleaseCause `json:"mark,omitempty"`
	Waiting bool         `json:"waiting,omitempty"`
}

// SetRestored writes RestoredAnnotation; the zero value removes it.
func SetRestored(node *corev1.Node, r Restored) {
	if r == (Restored{}) {
		Annotate(node, RestoredAnnotation, "")
		return
	}
	r.At = r.At.UTC()
	text, err := json.Marshal(r)
	if err != nil { // a year beyond 9999
		return
	}
	Annotate(node, RestoredAnnotation, string(text))
}

// readRestored reads RestoredAnnotation; one that somebody broke is empty.
func readRestored(annotations map[string]string) Restored {
	var r Restored
	if json.Unmarshal([]byte(annotations[RestoredAnnotation]), &r) != nil {
		return Restored{}
	}
	return r
}

// Request is a person's request to release a session.
type Request struct{ Session, By, Reason string }

// Annotation is a request's key and value.
func (r Request) Annotation() (key, value string) {
	return ReleasePrefix + r.Session, r.By + ": " + r.Reason
}

// requestOf is the request to release a session; the zero value if there is none.
func requestOf(annotations map[string]string, session string) Request {
	by, reason, named := strings.Cut(annotations[ReleasePrefix+session], ": ")
	if session == "" || !named || by == "" {
		return Request{}
	}
	return Request{Session: session, By: by, Reason: reason}
}

// EndRelease removes what was noted about the release of a session.
func EndRelease(node *corev1.Node) {
	for key := range node.Annotations {
		if strings.HasPrefix(key, ReleasePrefix) {
			delete(node.Annotations, key)
		}
	}
	for _, key := range []string{LiftedByAnnotation, RestoredAnnotation, AnyoneReleasesAnnotation} {
		Annotate(node, key, "")
	}
}

// Writer is the kind of user that lifted a mark.
type Writer string

// Writers.
const (
	UnknownWriter  Writer = "unknown"
	Person         Writer = "user"
	ServiceAccount Writer = "service account"
	// System is a node, or a component of the control plane.
	System Writer = "system"
)

// WriterOf is the kind of a user name of the API server.
func WriterOf(user string) Writer {
	switch {
	case user == "":
		return UnknownWriter
	case strings.HasPrefix(user, "system:serviceaccount:"):
		return ServiceAccount
	case strings.HasPrefix(user, "system:node:"), strings.HasPrefix(user, "system:kube-"), user == "system:apiserver", user == "system:anonymous":
		return System
	}
	return Person
}

// Repairing reports whether a repair object of the session is active, or claims the Node.
func (m Marks) Repairing() bool { return m.Claim != "" || m.State == Remediating }

// released returns how a person released the session. A lifted mark alone is a release only
// if a person is known to have lifted it while no repair object was active.
func (m Marks) released() ReleaseCause {
	switch {
	case m.Session == "":
		return NotReleased
	case m.Request != Request{}:
		return ByRequest
	case m.AnyoneReleases, WriterOf(m.LiftedBy) == Person && !m.Repairing():
		return m.Lifted
	}
	return NotReleased
}

// ClearPrefix begins the annotations by which a person asks to have faults
// cleared: the rest of the key is a record's id, the value is the person's user
// name, ": ", and the reason. An admission policy holds that the name is the
// writer's own.
const ClearPrefix = "clear.nvsentinel.dgxc.nvidia.com/"

// Clearing is what one such annotation states.
type Clearing struct{ Record, By, Reason string }

// Clearings reads a Node's annotations; those without a name are left out.
func Clearings(annotations map[string]string) []Clearing {
	var out []Clearing
	for key, value := range annotations {
		id, ours := strings.CutPrefix(key, ClearPrefix)
		by, reason, named := strings.Cut(value, ": ")
		if ours && named && id != "" && by != "" {
			out = append(out, Clearing{id, by, reason})
		}
	}
	return out
}

// Annotation is a clearing's key and value.
func (c Clearing) Annotation() (key, value string) {
	return ClearPrefix + c.Record, c.By + ": " + c.Reason
}

// CanaryAnnotation is what a person asks the Node's connector for a canary with:
// an event for the record only that goes the whole way from the connector's own
// ingest endpoint. Its value is the event's id, a UUID of version 7, which shows when it was
// asked for.
const CanaryAnnotation = "canary.nvsentinel.dgxc.nvidia.com/event"
