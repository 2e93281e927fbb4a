package budget

import "time"

// Node is what a budget needs to know of a node.
type Node struct {
	Name   string
	Labels map[string]string
	// Counted is whether percentages are taken of this node (a GPU node).
	// Nodes in quarantine and candidates are always counted.
	Counted bool
	// InSession is whether the node is in quarantine, and Began since when;
	// the zero time is unknown.
	InSession bool
	Began     time.Time
}

// Candidate is a node that wants into quarantine.
type Candidate struct {
	Name   string
	Labels map[string]string
	// Counted is the same as in Node.
	Counted bool
	// InSession is whether the Node, as it was just read, bears a session.
	InSession bool
	// Order is the place in the queue, the lowest first: the store's append
	// order of the fault.
	Order int64
}

// Use is how far a budget is used.
type Use struct{ Used, Allowed int }

// Decision is what becomes of the candidates.
type Decision struct {
	// Granted are the candidates that fit, the oldest first.
	Granted []string
	// Refused is, by name, which limit has no capacity.
	Refused map[string]string
}
