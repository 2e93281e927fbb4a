package decision

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Suffices says whether a Node as a cache shows it is enough to judge on: it bears nothing
// of ours, no fault of its is open, and what waits was reported of the very machine, in
// the very boot, that it shows. What is written to the Node then holds only while it is
// in every fact as it was seen. A Node that bears marks is read from the API server: by
// a cache that is behind, what a person has just done would be undone.
func (n *Node) Suffices(pending, open []record.Record) bool {
	bare := n.Session == "" && !n.Kept && !n.LetGo && !n.OptedOut && len(n.Active)+len(n.Doubted)+len(n.Ended) == 0
	return bare && len(open) == 0 && !slices.ContainsFunc(pending, func(r record.Record) bool { return r.Node != n.Identity })
}
