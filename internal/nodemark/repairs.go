package nodemark

import (
	"encoding/json"
	"time"
)

// Repairs are what LatestFaultRemediationState shows of a session. Nothing is
// decided from it.
type Repairs struct {
	// EquivalenceGroups has the newest repair object of each group.
	EquivalenceGroups map[string]RepairObject `json:"equivalenceGroups"`
	// NeedsHuman are what a person is asked for.
	NeedsHuman []Call `json:"needsHuman,omitempty"`
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
	var r Repairs
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return Repairs{}
	}
	return r
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
