package nodemark

import (
	"encoding/json"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// RepeatOffender is what RepeatOffenderAnnotation states: which machine is one, and since when.
type RepeatOffender struct {
	// Machine is the one that was marked, without its boot.
	Machine record.NodeIdentity `json:"machine"`
	Since   time.Time           `json:"since,omitzero"`
	// Window is the time within which repairs count, as a duration's text.
	Window string `json:"window,omitempty"`
	// Repairs are those that it needed, oldest first; MaxCountedRepairs at most.
	Repairs []CountedRepair `json:"repairs,omitempty"`
	// RequiresRelease is the session in which its next repair was left to a person: no recovery
	// ends that session. Empty when there is none.
	RequiresRelease string `json:"kept,omitempty"`
}

// CountedRepair is a repair that a machine needed: the session, and when.
type CountedRepair struct {
	Session string    `json:"session"`
	At      time.Time `json:"at"`
}

// MaxCountedRepairs bounds the repairs in a RepeatOffender; the oldest go first.
const MaxCountedRepairs = 10

// ParseRepeatOffender reads RepeatOffenderAnnotation; false if there is none, or somebody broke it.
func ParseRepeatOffender(text string) (RepeatOffender, bool) {
	var l RepeatOffender
	if text == "" || json.Unmarshal([]byte(text), &l) != nil {
		return RepeatOffender{}, false
	}
	return l, true
}

// Text is the annotation's value.
func (ro RepeatOffender) Text() string {
	text, err := json.Marshal(ro)
	if err != nil { // a year beyond 9999
		return "{}"
	}
	return string(text)
}

// Within counts the repairs of its window that ends now; all of them without one.
func (ro RepeatOffender) Within(now time.Time) int {
	window, err := time.ParseDuration(ro.Window)
	n := 0
	for _, r := range ro.Repairs {
		if err != nil || r.At.After(now.Add(-window)) {
			n++
		}
	}
	return n
}

// RepeatOffenderMark is the mark of a repeat offender on a Node: its label, and the annotation
// beside it, which is a RepeatOffender's text or what somebody made of it.
type RepeatOffenderMark struct {
	Label bool
	Note  string
	// Former: a part of it has a former name, so that it has to be written again.
	Former bool
}

// RequiresRelease reports whether the Node is a repeat offender whose session is kept for a person.
func (m Marks) RequiresRelease() bool {
	l, ok := ParseRepeatOffender(m.RepeatOffender.Note)
	return ok && m.RepeatOffender.Label && l.RequiresRelease != "" && l.RequiresRelease == m.Session
}

// Repairs are what LatestFaultRemediationState shows of a session. Nothing is
// decided from it.
type Repairs struct {
	// EquivalenceGroups has the newest repair object of each group.
	EquivalenceGroups map[string]RepairObject `json:"equivalenceGroups"`
	// NeedsHuman are what a person is asked for.
	NeedsHuman []Call `json:"manualInterventions,omitempty"`
}

// RepairObject is a repair object of a group.
type RepairObject struct {
	MaintenanceCR string    `json:"maintenanceCR"`
	CreatedAt     time.Time `json:"createdAt"`
	ActionName    string    `json:"actionName"`
}

// Call asks a person about one record.
type Call struct {
	Record  string `json:"record"`
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ParseRepairs reads LatestFaultRemediationState; one that somebody broke shows
// nothing.
func ParseRepairs(text string) Repairs {
	var r allRepairs
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return Repairs{}
	}
	return r.present()
}

// Text is the annotation's value; empty if there is nothing to show.
func (r Repairs) Text() string {
	if len(r.EquivalenceGroups)+len(r.NeedsHuman) == 0 {
		return ""
	}
	text, err := json.Marshal(r)
	if err != nil { // a year beyond 9999
		return ""
	}
	return string(text)
}
