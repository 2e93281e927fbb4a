package labeling

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// MaxCount is the most that is believed of a count.
const MaxCount = 999_999

// Count is what is known of a Node's devices of one class.
type Count struct {
	// Value was counted, unless there is Trouble: NoSource, NotEvaluated or NotListed.
	Value   int
	Trouble Reason
	// Group names the nodes that should have the same; empty if a label is missing
	// by which they are grouped.
	Group string
	// Peers is Groups.Most of the group.
	Peers int
}

// count rules on the labels of one class. What is not known leaves them as they
// are.
func (d *decision) count(c Class) {
	seen := d.Counts[c.Name]
	switch {
	case !d.Ready:
		d.keep(c.Labels, NodeNotReady)
		return
	case seen.Trouble != "":
		d.keep(c.Labels, seen.Trouble)
		return
	}
	had, should := d.labelled(c, seen)
	current, reason := d.current(c, seen, had, should)
	if current < 0 {
		d.keep(c.Labels, Waits)
		return
	}
	d.set(c.Labels.Current, strconv.Itoa(current), reason)
	expected, reason := d.expected(c, seen, current, should)
	d.set(c.Labels.Expected, strconv.Itoa(expected), reason)
	if seen.Group == "" {
		d.set(c.Labels.Group, d.Labels[c.Labels.Group], Ungrouped)
		return
	}
	d.set(c.Labels.Group, seen.Group, Grouped)
}

func (d *decision) keep(k nodemark.CountLabels, reason Reason) {
	for _, key := range []string{k.Current, k.Expected, k.Group} {
		d.set(key, d.Labels[key], reason)
	}
}

// labelled returns what the Node had and should have by its labels; -1 and 0 where they do
// not show it. They show nothing about another group: another product, or another partition
// of its GPUs, is counted from the start.
func (d *decision) labelled(c Class, seen Count) (had, should int) {
	group := d.Labels[c.Labels.Group]
	if seen.Group != "" && group != "" && group != seen.Group {
		return -1, 0
	}
	had, known := number(d.Labels[c.Labels.Current])
	if !known {
		had = -1
	}
	should, _ = number(d.Labels[c.Labels.Expected])
	return had, should
}

// current is what was counted, or -1 if nothing is believed yet. Fewer than the Node had,
// or than is expected of one of which nothing is known, are believed after the grace: a
// device plugin that is restarted, or a kubelet, counts none for a while. So are more than
// any Node of the group had: a GPU that is shared from now on is counted many times before
// its labels show it, and all others would be expected to have as many.
func (d *decision) current(c Class, seen Count, had, should int) (int, Reason) {
	least, most := had, max(had, should, seen.Peers)
	if had < 0 {
		least = most
	}
	switch {
	case most <= 0, least <= seen.Value && seen.Value <= most:
		return seen.Value, Counted
	case seen.Value < least && d.missing(c.Labels.Current):
		return seen.Value, Fell
	case seen.Value > most && d.missing(c.Labels.Expected):
		return seen.Value, Rose
	}
	return had, Waits
}

// expected is the most of what the Node has, what it had in this group, and what others of
// the group have; or what the configuration sets.
func (d *decision) expected(c Class, seen Count, current, should int) (int, Reason) {
	for _, o := range c.Overrides {
		if o.matches(d.Labels) {
			return o.Count, Overridden
		}
	}
	most, reason := current, Counted
	if should > most {
		most, reason = should, Remembered
	}
	if seen.Group != "" && seen.Peers > most {
		most, reason = seen.Peers, OfPeers
	}
	return most, reason
}

// countLabel finds the labels that count.
var countLabel = regexp.MustCompile(`^nvsentinel\.dgxc\.nvidia\.com/[a-z0-9]([-a-z0-9]*[a-z0-9])?\.count\.(current|expected|group)$`)

// drop takes off the labels of classes that are not there any more.
func (d *decision) drop() {
	known := map[string]bool{}
	for _, r := range d.rulings {
		known[r.Key] = true
	}
	for key := range d.Labels {
		if !known[key] && countLabel.MatchString(key) {
			d.set(key, "", Dropped)
		}
	}
}

// number reads a label's value; what is none is not there.
func number(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > MaxCount {
		return 0, false
	}
	return n, true
}

// LabeledAs returns what a Node's labels show about the class to the others of its group;
// ok is false if they have no count, or that of another group.
func (c Class) LabeledAs(labels map[string]string) (labelled Labelled, ok bool) {
	group := c.Group(labels)
	count, known := number(labels[c.Labels.Current])
	return Labelled{Class: c.Name, Group: group, Count: count}, known && group != "" && labels[c.Labels.Group] == group
}

// Below reports whether the labels state that the Node has fewer than it should.
func (c Class) Below(labels map[string]string) bool {
	current, ok1 := number(labels[c.Labels.Current])
	expected, ok2 := number(labels[c.Labels.Expected])
	return ok1 && ok2 && current < expected
}

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

// Labelled is what the labels of one Node show about one class.
type Labelled struct {
	Class, Group string
	Count        int
}

// NewGroups has no nodes.
func NewGroups() *Groups {
	return &Groups{memberships: map[string]map[string]membership{}, groups: map[groupKey]*group{}}
}

// Set records what the labels of a Node show, and returns the nodes of groups whose maximum
// has changed. For a Node that is gone, or opted out, says is empty.
func (g *Groups) Set(node string, labelled []Labelled) (moved []string) {
	before, after, most := g.memberships[node], map[string]membership{}, map[groupKey]int{}
	for _, s := range labelled {
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

// witnesses are how many nodes of a group of more than two must have as many: root on one
// node can set its count to any value, and must not decide for the others.
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
