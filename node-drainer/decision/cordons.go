package decision

import (
	"maps"
	"slices"
	"time"
)

// Unmarked is a fault without marks on the Node yet: it is not evaluated, or its quarantine is
// not written to the Node.
type Unmarked struct {
	Node string
	// Since is when the fault was stored, or its verdict heard of.
	Since time.Time
}

const (
	// unmarkedFor is how long a fault counts as about to be marked; one that cannot be
	// evaluated stops no drain.
	unmarkedFor = 20 * time.Second
	// StandBackFor is how long one drain stands back at most.
	StandBackFor = 10 * time.Second
	// burst is how many other nodes with such faults are more than a coincidence. One
	// node that reports without end is none.
	burst = 4
)

// Fresh returns nodes with such faults, as many as it takes to detect a burst. It removes the
// faults that no longer count from all.
func Fresh(all map[string]Unmarked, now time.Time) (nodes []string) {
	maps.DeleteFunc(all, func(_ string, f Unmarked) bool { return now.Sub(f.Since) >= unmarkedFor })
	for _, f := range all {
		if len(nodes) <= burst && !slices.Contains(nodes, f.Node) {
			nodes = append(nodes, f.Node)
		}
	}
	return nodes
}

// StandsBack reports whether a node's drain, which has not begun, leaves the cluster's
// servers to the cordons of other nodes first: a node that is not cordoned takes new
// pods, those that a drain moves among them. fresh are the nodes of Fresh, since is
// when this drain began to stand back, or now.
func StandsBack(node string, fresh []string, since, now time.Time) bool {
	if now.Sub(since) >= StandBackFor || now.Before(since) {
		return false
	}
	others := len(fresh)
	if slices.Contains(fresh, node) {
		others--
	}
	return others >= burst
}
