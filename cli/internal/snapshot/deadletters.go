package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashloop"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// deadLetters are the records that a service passes over because they killed it; the
// error is of those services that could not be asked for.
func (s Sources) deadLetters(ctx context.Context) (out []timeline.DeadLetter, err error) {
	for _, f := range feeds {
		deadLetters, problem := s.Records.DeadLetters(ctx, consumer.PoisonRecordSource(f.name))
		err = errors.Join(err, problem)
		for _, l := range deadLetters {
			var at crashloop.Work
			if json.Unmarshal(l.Body, &at) != nil {
				at.Key = ""
			}
			out = append(out, timeline.DeadLetter{Consumer: f.name, Record: l.ID, Key: at.Key, At: l.At})
		}
	}
	suspects, problem := consumer.Suspects(ctx, s.Records)
	for _, x := range suspects {
		out = append(out, timeline.DeadLetter{Consumer: x.Consumer, Key: x.Key, Crashes: x.Crashes, At: x.At})
	}
	return out, errors.Join(err, problem)
}

// ofConnector are the events that killed the connector of a node.
func (s Sources) ofConnector(ctx context.Context, node string) (out []timeline.DeadLetter, err error) {
	deadLetters, err := s.Records.DeadLetters(ctx, store.Connectors+"/"+node)
	for _, l := range deadLetters {
		if strings.Contains(l.Reason, " killed ") {
			out = append(out, timeline.DeadLetter{Consumer: timeline.NodesConnector, Record: l.ID, Key: node, At: l.At})
		}
	}
	return out, err
}

// undecodable are the records that lists leave out because they cannot be decoded.
func (s Sources) undecodable(ctx context.Context) (ids []string, err error) {
	deadLetters, err := s.Records.DeadLetters(ctx, store.Undecodable)
	for _, l := range deadLetters {
		ids = append(ids, l.ID)
	}
	return ids, err
}

// counted is what gateways have counted of nodes on the newest day of each node.
func (s Sources) counted(ctx context.Context) ([]timeline.Counted, error) {
	days, err := store.ReadUse(ctx, s.Records)
	return sum(days), err
}

// sum adds up what gateways have counted of each node on its newest day; the nodes of most
// events are first.
func sum(days []store.UseDay) (out []timeline.Counted) {
	newest, of := map[string]string{}, map[string]store.CountedUse{}
	for _, d := range days {
		for node, n := range d.Nodes {
			if n.Counted.Records == 0 || d.Day < newest[node] {
				continue
			}
			if d.Day > newest[node] {
				newest[node], of[node] = d.Day, store.CountedUse{}
			}
			of[node] = of[node].Plus(n.Counted)
		}
	}
	for node, c := range of {
		out = append(out, timeline.Counted{Node: node, Records: c.Records, Bytes: c.Bytes, First: c.First, Last: c.Last})
	}
	slices.SortFunc(out, func(a, b timeline.Counted) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), strings.Compare(a.Node, b.Node))
	})
	return out
}

// ofNode are those about a node: its service was at the node, or it has the
// record.
func ofNode(all []timeline.DeadLetter, node string, records []record.Record) (out []timeline.DeadLetter) {
	for _, a := range all {
		if a.Key == node || slices.ContainsFunc(records, func(r record.Record) bool { return r.ID == a.Record }) {
			out = append(out, a)
		}
	}
	return out
}
