package fault

import (
	"cmp"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Before says whether a comes before b in the order that counts for faults and
// recoveries: the publisher's counter within one machine, publisher and epoch,
// else the store's append order. Wall time is never an order.
func Before(a, b record.Record) bool {
	if samePublisher(a, b) {
		return a.Seq < b.Seq
	}
	return a.Append < b.Append
}

func samePublisher(a, b record.Record) bool {
	return a.SeqEpoch != "" && a.SeqEpoch == b.SeqEpoch && a.Event.Agent == b.Event.Agent &&
		Compare(a.Node, b.Node) != AnotherMachine
}

// InOrder sorts records for judging: by append order, with the members of each
// publisher put into their own order within the places they hold.
func InOrder(records []record.Record) []record.Record {
	out := slices.Clone(records)
	slices.SortStableFunc(out, func(a, b record.Record) int { return cmp.Compare(a.Append, b.Append) })
	type publisher struct{ agent, epoch, machine string }
	places := map[publisher][]int{}
	for i, r := range out {
		if r.SeqEpoch != "" {
			p := publisher{r.Event.Agent, r.SeqEpoch, Machine(r.Node)}
			places[p] = append(places[p], i)
		}
	}
	for _, at := range places {
		members := make([]record.Record, len(at))
		for i, place := range at {
			members[i] = out[place]
		}
		slices.SortStableFunc(members, func(a, b record.Record) int { return cmp.Compare(a.Seq, b.Seq) })
		for i, place := range at {
			out[place] = members[i]
		}
	}
	return out
}
