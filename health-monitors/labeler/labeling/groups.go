package labeling

import (
	"maps"
	"slices"
)

// Groups keeps how many devices the nodes of each group are labelled with. It is
// not safe for concurrent use.
type Groups struct {
	memberships map[string]map[string]membership // by node and class
	groups      map[groupKey]*group
}

type groupKey struct{ class, group string }

// membership is a Node's in one group.
type membership struct {
	key   groupKey
	count int
}

// group is the nodes of one, and how many of them have how many devices.
type group struct {
	nodes  map[string]bool
	having map[int]int
}

// Labelled is what the labels of one Node say of one class.
type Labelled struct {
	Class, Group string
	Count        int
}

// NewGroups has no nodes.
func NewGroups() *Groups {
	return &Groups{memberships: map[string]map[string]membership{}, groups: map[groupKey]*group{}}
}

// Set takes in all that the labels of a Node say, and returns the nodes of groups
// whose most has changed. A Node that is gone, or opted out, says nothing.
func (g *Groups) Set(node string, says []Labelled) (moved []string) {
	before, after, most := g.memberships[node], map[string]membership{}, map[groupKey]int{}
	for _, s := range says {
		if s.Group == "" {
			continue
		}
		m := membership{groupKey{s.Class, s.Group}, s.Count}
		after[s.Class], most[m.key] = m, g.most(m.key)
	}
	for class, m := range before {
		if after[class] != m {
			most[m.key] = g.most(m.key)
			g.move(node, m, -1)
		}
	}
	for class, m := range after {
		if before[class] != m {
			g.move(node, m, 1)
		}
	}
	g.memberships[node] = after
	if len(after) == 0 {
		delete(g.memberships, node)
	}
	for key, was := range most {
		if g.groups[key] == nil || g.most(key) == was {
			continue
		}
		for name := range g.groups[key].nodes {
			moved = append(moved, name)
		}
	}
	return moved
}

// witnesses are how many nodes of a group of more than two must have as many: who is
// root on one node can have it say anything, and must not speak for others.
const witnesses = 2

// Most is the most that Nodes of the group are labelled with: two of them, in a group
// of more than two; 0 if none is.
func (g *Groups) Most(class, of string) int { return g.most(groupKey{class, of}) }

func (g *Groups) most(key groupKey) int {
	one := g.groups[key]
	if one == nil {
		return 0
	}
	need := 1
	if len(one.nodes) > witnesses {
		need = witnesses
	}
	for _, count := range slices.Backward(slices.Sorted(maps.Keys(one.having))) {
		if need -= one.having[count]; need <= 0 {
			return count
		}
	}
	return 0
}

// move puts a Node into a group (1), or takes it out (-1).
func (g *Groups) move(node string, m membership, by int) {
	one := g.groups[m.key]
	if one == nil {
		one = &group{map[string]bool{}, map[int]int{}}
		g.groups[m.key] = one
	}
	one.nodes[node] = true
	if one.having[m.count] += by; one.having[m.count] == 0 {
		delete(one.having, m.count)
	}
	if by < 0 {
		delete(one.nodes, node)
	}
	if len(one.nodes) == 0 {
		delete(g.groups, m.key)
	}
}
