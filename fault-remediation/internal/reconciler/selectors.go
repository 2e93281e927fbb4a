package reconciler

import "github.com/nvidia/nvsentinel/data-models/record"

// RepairsOf selects what a decision looks at: a node's open records and all with a
// repair trace.
func RepairsOf(node string) record.Selector {
	return record.Selector{
		Name: "Repairs of a node", Node: node,
		Any: []record.Selector{{Open: record.Yes()}, {Repaired: record.Yes()}},
	}
}

// Unsettled selects the repaired records that something may follow, of all nodes.
func Unsettled() record.Selector {
	return record.Selector{
		Name: "Unsettled repairs", Repaired: record.Yes(),
		Any: []record.Selector{{Remediated: "null"}, {Remediated: "false"}},
	}
}

// NewestOf selects what a publisher's outbox reported about a node, for the boot
// that the newest of it names. What was only observed (PERSIST_ONLY) proves no
// boot to be past: it would settle a fault, and a label would say so.
func NewestOf(node, agent, epoch string) record.Selector {
	return record.Selector{Name: "Newest of a publisher", Node: node, Agent: agent, SeqEpoch: epoch, Strategy: record.Process}
}
