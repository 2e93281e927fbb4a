package fault

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Before reports whether a comes before b in the order that counts for faults and
// recoveries: their publisher's counting where it gives one, else the store's append
// order. Wall time is never an order.
//
// The counting orders the records of one machine, publisher and epoch: within one run of the
// counter by the number, across runs if the later one names the earlier one as
// before it. It does not order two runs of which neither led to the other: the
// counter's disk was restored from an image between them, and its numbers were
// given twice. Nor does it order the numbers of a publisher that names no runs.
func Before(a, b record.Record) bool {
	if earlier, known := counted(a, b); known {
		return earlier
	}
	return a.Append < b.Append
}

// Follows reports whether b comes after a in the counting of their publisher.
func Follows(a, b record.Record) bool {
	earlier, known := counted(a, b)
	return known && earlier
}

func counted(a, b record.Record) (earlier, known bool) {
	if a.SeqEpoch == "" || a.SeqEpoch != b.SeqEpoch || a.Event.Agent != b.Event.Agent || Compare(a.Node, b.Node) == AnotherMachine {
		return false, false
	}
	runA, beforeA := a.Event.Runs()
	runB, beforeB := b.Event.Runs()
	switch {
	case runA == runB && !a.Event.NamesRuns() && !b.Event.NamesRuns():
		return false, false // nobody knows whether the counter began again
	case runA == runB:
		return a.Seq < b.Seq, true
	case names(beforeB, runA):
		return true, true
	case names(beforeA, runB):
		return false, true
	}
	return false, false
}

// names reports whether a run is one of a list.
func names(runs, run string) bool {
	for r := range strings.SplitSeq(runs, " ") {
		if r == run {
			return true
		}
	}
	return false
}

// publisher is who counts in one order, run by run.
type publisher struct{ agent, epoch, machine string }

// InOrder sorts records for the evaluation: by append order, with the members of each
// publisher put into their own order within the places they hold.
func InOrder(records []record.Record) []record.Record {
	out := slices.Clone(records)
	slices.SortStableFunc(out, func(a, b record.Record) int { return cmp.Compare(a.Append, b.Append) })
	places := map[publisher][]int{}
	for i, r := range out {
		if r.SeqEpoch != "" && r.Event.NamesRuns() {
			p := publisher{r.Event.Agent, r.SeqEpoch, Machine(r.Node)}
			places[p] = append(places[p], i)
		}
	}
	for _, at := range places {
		members := make([]record.Record, len(at))
		for i, place := range at {
			members[i] = out[place]
		}
		order := runsOf(members)
		slices.SortStableFunc(members, func(a, b record.Record) int {
			runA, _ := a.Event.Runs()
			runB, _ := b.Event.Runs()
			return cmp.Or(cmp.Compare(slices.Index(order, runA), slices.Index(order, runB)), cmp.Compare(a.Seq, b.Seq))
		})
		for i, place := range at {
			out[place] = members[i]
		}
	}
	return out
}

// runsOf lists the runs of one publisher's records: each before those that name
// it, and else as their first records stand.
func runsOf(records []record.Record) (order []string) {
	before := map[string]string{}
	for _, r := range records {
		run, earlier := r.Event.Runs()
		if _, known := before[run]; known {
			continue
		}
		before[run] = earlier
		at := slices.IndexFunc(order, func(later string) bool { return names(before[later], run) })
		if at < 0 {
			at = len(order)
		}
		order = slices.Insert(order, at, run)
	}
	return order
}
