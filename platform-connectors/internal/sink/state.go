// Package sink shows the faults of the connector's node in Kubernetes: node
// conditions from its own durable fault set, and Kubernetes Events. It folds
// what the spool holds and never makes the spool wait for the API server.
package sink

import (
	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// stateVersion is the version of the file's shape. In version 1 each name of a
// thing that several types name together was a fault of its own.
const stateVersion = 2

// state is the sink's file: the fault set and how far it has followed the spool.
type state struct {
	Version int `json:"version"`
	// Epoch and Index are the spool's entry that was folded last.
	Epoch string `json:"epoch"`
	Index uint64 `json:"index"`
	// Complete is false as long as the set may lack faults: the file was lost
	// and not yet rebuilt from the store.
	Complete bool            `json:"complete"`
	Set      *conditions.Set `json:"set"`
}

// loadState reads the file and finds its place in the spool. A file that is
// lost or cannot be read is an incomplete, empty set.
func loadState(path, epoch string, released, committed uint64) (s state, problem string) {
	fresh := state{Version: stateVersion, Epoch: epoch, Index: released, Set: &conditions.Set{}}
	switch found, err := durable.Load(path, durable.Versions{Oldest: 1, Newest: stateVersion}, &s); {
	case err != nil:
		return fresh, err.Error()
	case !found:
		return fresh, "there is none"
	case s.Set == nil:
		return fresh, "it has no fault set"
	}
	former := s.Version < stateVersion
	s.Version = stateVersion
	switch {
	case former && s.Set.UnpairedNames():
		// What is fault and what is healthy of it only the events say.
		return fresh, "its faults are those of an older version"
	case s.Epoch != epoch:
		// Another spool: what the old one still held is lost, what was folded stands.
		s.Epoch, s.Index = epoch, released
	case s.Index < released || s.Index > committed:
		s.Index, s.Complete = released, false
		return s, "the spool does not continue where it ended"
	}
	return s, ""
}
