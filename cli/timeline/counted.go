package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Counted is what of a node's events was counted and not stored, because the node was
// beyond its quota of the day.
type Counted struct {
	Node    string    `json:"node"`
	Records int64     `json:"records"`
	Bytes   int64     `json:"bytes"`
	First   time.Time `json:"first,omitzero"`
	Last    time.Time `json:"last,omitzero"`
}

// Undelivered is a node whose connector cannot hand its events to the store.
type Undelivered struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why"`
}

// countedNodes and undeliveredNodes are as many as are named.
const countedNodes, undeliveredNodes = 8, 8

// counted names the nodes that bring more than their quota.
func (p *page) counted(f Fleet) {
	n := len(f.Counted)
	if n == 0 {
		return
	}
	names := firstOf(f.Counted, countedNodes, func(c Counted) string {
		return fmt.Sprintf("%s %d (%.1f MB, from %s to %s ago)", plain(c.Node), c.Records, float64(c.Bytes)/1e6, span(f.At.Sub(c.First)), span(f.At.Sub(c.Last)))
	})
	p.line("%s", p.paint(Alert, fmt.Sprintf("! %d nodes beyond their quota of the day, events counted and not stored: %s; see docs/gateway.md", n, names)))
}

// undeliveredOf are the nodes whose connector says so, the longest first.
func undeliveredOf(nodes []Node) (out []Undelivered) {
	for _, n := range nodes {
		for _, c := range n.Conditions {
			if c.Type == nodemark.EventDelivery {
				out = append(out, Undelivered{n.Name, c.Since, c.Message})
			}
		}
	}
	slices.SortFunc(out, func(a, b Undelivered) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// undelivered names the nodes whose events wait.
func (p *page) undelivered(f Fleet) {
	n := len(f.Undelivered)
	if n == 0 {
		return
	}
	names := firstOf(f.Undelivered, undeliveredNodes, func(u Undelivered) string {
		return fmt.Sprintf("%s (for %s)", plain(u.Node), span(f.At.Sub(u.Since)))
	})
	p.line("%s", p.paint(Alert, fmt.Sprintf("! %d nodes whose events do not reach the store and wait on the node: %s", n, names)))
	p.line("%s", plain("    "+f.Undelivered[0].Node+": "+f.Undelivered[0].Why))
}
