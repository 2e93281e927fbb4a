package store

import (
	"context"
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Stranded is an open fault and the newest event of its publisher about the same
// check of the same node, which is PERSIST_ONLY.
type Stranded struct {
	Open, Newest record.Record
}

// within bounds how many of an agent's newest events on a node are looked
// through, in pages of atOnce; a check that none of them is about counts as not
// switched.
const (
	within = 500
	atOnce = 100
)

// StrandedOf finds the stranded among the open faults; newest are later events of their
// publishers, the newest first. An agent is told apart by check, because one
// policy or check may be switched and another not. Repeats that the connector
// demoted are not what the publisher said; a fault that waits to be confirmed was
// told as PROCESS.
func StrandedOf(open, newest []record.Record) []Stranded {
	last := said{}
	last.add(newest)
	return last.strand(open)
}

// publisher is an agent on a node, about one of its checks.
type publisher struct{ node, agent, check string }

func publisherOf(r record.Record) publisher {
	return publisher{r.Event.NodeName, r.Event.Agent, r.Event.CheckName}
}

// said is what each publisher said last.
type said map[publisher]record.Record

// add takes records, the newest first, that are older than those before.
func (s said) add(newest []record.Record) {
	for _, r := range newest {
		if _, known := s[publisherOf(r)]; !known && r.Event.Metadata[record.MetadataRepeatOf] == "" {
			s[publisherOf(r)] = r
		}
	}
}

func (s said) strand(open []record.Record) (out []Stranded) {
	for _, r := range record.Acting(open) {
		now, known := s[publisherOf(r)]
		if _, _, waits := now.Event.Waits(); known && !waits && !now.Acts() && now.Append > r.Append {
			out = append(out, Stranded{Open: r, Newest: now})
		}
	}
	return out
}

// FindStranded reads what the publishers of open faults said last, with one query for
// each agent and node, and finds the stranded among them.
func FindStranded(ctx context.Context, records Lister, open []record.Record) ([]Stranded, error) {
	asked, last := map[publisher]bool{}, said{}
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
	return last.strand(open), nil
}
