package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Uncovered is a GPU node without a live publisher: no fault of it would be
// reported.
type Uncovered struct {
	Node   string    `json:"node"`
	Since  time.Time `json:"reported"`
	Why    string    `json:"why"`
	Record string    `json:"record"`
}

// uncoveredNodes are as many as are named.
const uncoveredNodes = 8

// UncoveredOf are the nodes whose newest report says so, the oldest first; reports
// are those of record.Coverage, the newest first.
func UncoveredOf(reports []record.Record) (out []Uncovered) {
	seen := map[string]bool{}
	for _, r := range reports {
		if node := r.Event.NodeName; !seen[node] {
			seen[node] = true
			if !r.Event.IsHealthy {
				out = append(out, Uncovered{node, r.CreatedAt, r.Event.Message, r.ID})
			}
		}
	}
	slices.SortFunc(out, func(a, b Uncovered) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// uncovered names the nodes of which nobody would report a fault.
func (p *page) uncovered(f Fleet) {
	n := len(f.Uncovered)
	if n == 0 {
		return
	}
	names := firstOf(f.Uncovered, uncoveredNodes, func(u Uncovered) string {
		return fmt.Sprintf("%s (reported %s ago)", plain(u.Node), span(f.At.Sub(u.Since)))
	})
	p.line("%s", p.paint(Alert, fmt.Sprintf("! %d GPU nodes without a live publisher, no fault of theirs would be seen: %s", n, names)))
}
