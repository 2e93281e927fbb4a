package store

import (
	"context"
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// OrphanedFault is an open fault and the newest event of its publisher about the same
// check of the same node, which is PERSIST_ONLY.
type OrphanedFault struct {
	Open, Newest record.Record
}

// within bounds how many of an agent's newest events on a node are looked
// through, in pages of atOnce; a check that none of them is about counts as not
// switched.
const (
	within = 500
	atOnce = 100
)

// OrphanedOf returns the orphaned faults among the open ones; newest are later events of their
// publishers, the newest first. Each check of an agent counts separately, because one policy or
// check may be switched to PERSIST_ONLY and another not. Repeats that the connector demoted are
// not what the publisher reported; a fault that waits to be confirmed was reported as PROCESS.
func OrphanedOf(open, newest []record.Record) []OrphanedFault {
	last := newestReports{}
	last.add(newest)
	return last.orphaned(open)
}

// publisher is an agent on a node, about one of its checks.
type publisher struct{ node, agent, check string }

func publisherOf(r record.Record) publisher {
	return publisher{r.Event.NodeName, r.Event.Agent, r.Event.CheckName}
}

// newestReports is what each publisher reported last.
type newestReports map[publisher]record.Record

// add takes records, the newest first, that are older than those before.
func (n newestReports) add(newest []record.Record) {
	for _, r := range newest {
		if _, known := n[publisherOf(r)]; !known && r.Event.Metadata[record.MetadataRepeatOf] == "" {
			n[publisherOf(r)] = r
		}
	}
}

func (n newestReports) orphaned(open []record.Record) (out []OrphanedFault) {
	for _, r := range record.Acting(open) {
		now, known := n[publisherOf(r)]
		if _, _, waits := now.Event.Waits(); known && !waits && !now.Acts() && now.Append > r.Append {
			out = append(out, OrphanedFault{Open: r, Newest: now})
		}
	}
	return out
}

// FindOrphaned reads what the publishers of open faults reported last, with one query for
// each agent and node, and returns the orphaned ones.
func FindOrphaned(ctx context.Context, records Lister, open []record.Record) ([]OrphanedFault, error) {
	asked, last := map[publisher]bool{}, newestReports{}
	for _, r := range open {
		p := publisher{node: r.Event.NodeName, agent: r.Event.Agent}
		if asked[p] {
			continue
		}
		asked[p] = true
		q, looked := Query{
			Selector: record.Selector{Name: "Newest of an agent", Node: p.node, Agent: p.agent},
			Order:    ByAppendDescending, Limit: atOnce,
		}, 0
		err := Pages(ctx, records, q, func(page []record.Record) error {
			last.add(page)
			if looked += len(page); looked >= within {
				return Enough
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading the newest records of %s on node %s: %w", p.agent, p.node, err)
		}
	}
	return last.orphaned(open), nil
}
