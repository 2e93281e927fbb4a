package collector

import "time"

// ManifestName is the archive's last file: what is in it, and what is not.
const ManifestName = "MANIFEST.json"

// Manifest tells what became of each part.
type Manifest struct {
	Node    string    `json:"node,omitempty"`
	Created time.Time `json:"created"`
	// Version of the collector.
	Version string `json:"version"`
	// Bytes of all parts, before they were compressed.
	Bytes int64   `json:"bytes"`
	Parts []Entry `json:"parts"`
	// FilesLeftOut is how many files of the host were more than are parts at most.
	FilesLeftOut int `json:"filesLeftOut,omitempty"`
}

// State is what became of a part.
type State string

// States of parts.
const (
	// Collected: whole, or its newest bytes.
	Collected State = "Collected"
	// Failed: what there is of it is in the archive.
	Failed State = "Failed"
	// Missing: the node has no such tool or file.
	Missing State = "Missing"
	// LeftOut: there was no time or no room left.
	LeftOut State = "LeftOut"
)

// Entry tells about one part.
type Entry struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Command or File is where it is from.
	Command []string `json:"command,omitempty"`
	File    string   `json:"file,omitempty"`
	// Exit is the command's status; without one it did not end by itself.
	Exit *int `json:"exit,omitempty"`
	// Bytes in the archive.
	Bytes int64 `json:"bytes"`
	// Truncated: older bytes were dropped.
	Truncated bool `json:"truncated,omitempty"`
	// Redactions is how many secrets were taken out, LongLines how many lines that were
	// too long to be looked at.
	Redactions int    `json:"redactions"`
	LongLines  int    `json:"longLines,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Counts of the entries by their states.
func (m Manifest) Counts() map[State]int {
	counts := map[State]int{}
	for _, e := range m.Parts {
		counts[e.State]++
	}
	return counts
}
