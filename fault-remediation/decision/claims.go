package decision

import "time"

// DefaultOrphanedAfter is how long a claim must have been seen without its
// object before it is dropped.
const DefaultOrphanedAfter = 5 * time.Minute

// Claims remembers since when claims are seen without their object. The zero
// value has seen none.
type Claims struct {
	missing map[string]observation
}

type observation struct {
	uid   string
	since time.Time
}

// Orphans are the Nodes whose claim has named no object for as long as patience,
// at every look since. claimed are the uids on the Nodes, which must have been
// read before exists, the uids of all objects that may claim one: an object is
// there before its claim. A clock that was set back begins again.
func (c *Claims) Orphans(claimed map[string]string, exists map[string]bool, now time.Time, patience time.Duration) []string {
	missing := map[string]observation{}
	var out []string
	for node, uid := range claimed {
		if exists[uid] {
			continue
		}
		s := observation{uid, now}
		if seen := c.missing[node]; seen.uid == uid && !seen.since.After(now) {
			s = seen
		}
		missing[node] = s
		if now.Sub(s.since) >= patience {
			out = append(out, node)
		}
	}
	c.missing = missing
	return out
}
