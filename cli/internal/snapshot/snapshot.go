// Package snapshot gathers the facts of a timeline from the store and the API server.
// It only reads, and what it cannot read it calls unknown.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Sources are where facts come from. A source that could not be opened is nil,
// with the reason beside it.
type Sources struct {
	Records      store.Reader
	RecordsError error
	Cluster      *kube.Client
	ClusterError error
	// Namespace is the installation's, in which its emergency stop is.
	Namespace string
	// Within bounds the reading of each source.
	Within time.Duration
	// Limit bounds the records read of one node, and the count of a lag.
	Limit int
}

// Names of the sources in a timeline.
const (
	storeName   = "store"
	clusterName = "API server"
)

// opened returns a source to ask, or one with the problem that prevents it.
func opened(name string, problem error) timeline.Source {
	if problem != nil {
		return timeline.Source{Name: name, Problem: problem.Error()}
	}
	return timeline.Source{Name: name}
}

// readSource runs what reads a source and notes how it went.
func readSource(ctx context.Context, within time.Duration, s *timeline.Source, read func(context.Context) error) {
	if s.Problem != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := read(ctx); err != nil {
		s.Problem = err.Error()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.Problem = fmt.Sprintf("no response within %s: %s", within, s.Problem)
		}
		return
	}
	s.Read = true
}

// Node gathers the facts of one node; both sources are asked at once.
func (s Sources) Node(ctx context.Context, name string, now time.Time) timeline.Facts {
	f := timeline.Facts{Node: name, Now: now, Store: opened(storeName, s.RecordsError), Cluster: opened(clusterName, s.ClusterError)}
	var both sync.WaitGroup
	both.Go(func() {
		readSource(ctx, s.Within, &f.Store, func(ctx context.Context) (err error) {
			f.Records, f.Older, err = s.records(ctx, name)
			return err
		})
		if f.Store.Read {
			readSource(ctx, s.Within, &f.Store, func(ctx context.Context) error {
				all, err := s.deadLetters(ctx)
				own, problem := s.ofConnector(ctx, name)
				f.DeadLettered = append(ofNode(all, name, f.Records), own...)
				return errors.Join(err, problem)
			})
		}
	})
	both.Go(func() {
		readSource(ctx, s.Within, &f.Cluster, func(ctx context.Context) (err error) {
			f.Sighting, err = readNode(ctx, s.Cluster, name)
			return err
		})
		if f.Cluster.Read {
			readSource(ctx, s.Within, &f.Cluster, func(ctx context.Context) (err error) {
				f.Objects, err = objects(ctx, s.Cluster, name)
				return err
			})
			readSource(ctx, s.Within, &f.Cluster, func(ctx context.Context) (err error) {
				f.Checks, err = checks(ctx, s.Cluster, ofNodeChecks(name, f.Sighting))
				return err
			})
		}
	})
	both.Go(func() { f.Pause = s.pause(ctx) })
	both.Wait()
	return f
}

// Fleet gathers the facts of all nodes; both sources are asked at once.
func (s Sources) Fleet(ctx context.Context, now time.Time) timeline.FleetFacts {
	f := timeline.FleetFacts{Now: now, Store: opened(storeName, s.RecordsError), Cluster: opened(clusterName, s.ClusterError)}
	var both sync.WaitGroup
	both.Go(func() {
		readSource(ctx, s.Within, &f.Store, func(ctx context.Context) (err error) {
			if f.Open, err = s.Records.List(ctx, store.Query{Selector: record.OpenOfNode("")}); err != nil {
				return err
			}
			if f.Backlog, err = s.Records.List(ctx, store.Query{Selector: record.BacklogOfNode("")}); err != nil {
				return err
			}
			if f.Newest, err = s.Records.List(ctx, store.Query{Selector: actingFaults, Order: store.ByAppendDescending, Limit: newestFaults}); err != nil {
				return err
			}
			reports, err := s.Records.List(ctx, store.Query{Selector: record.Coverage(), Order: store.ByAppendDescending, Limit: newestReports})
			if err != nil {
				return err
			}
			f.Uncovered = timeline.UncoveredOf(reports)
			f.Orphaned, err = s.orphanedFaults(ctx, f.Open)
			return err
		})
		if f.Store.Read {
			readSource(ctx, s.Within, &f.Store, func(ctx context.Context) (err error) {
				f.Consumers, err = s.consumers(ctx)
				return err
			})
			readSource(ctx, s.Within, &f.Store, func(ctx context.Context) (err error) {
				f.DeadLettered, err = s.deadLetters(ctx)
				return err
			})
			readSource(ctx, s.Within, &f.Store, func(ctx context.Context) (err error) {
				f.Undecodable, err = s.undecodable(ctx)
				return err
			})
			readSource(ctx, s.Within, &f.Store, func(ctx context.Context) (err error) {
				f.Counted, err = s.counted(ctx)
				return err
			})
		}
	})
	both.Go(func() {
		readSource(ctx, s.Within, &f.Cluster, func(ctx context.Context) (err error) {
			f.Nodes, err = listNodes(ctx, s.Cluster)
			return err
		})
		if f.Cluster.Read {
			readSource(ctx, s.Within, &f.Cluster, func(ctx context.Context) (err error) {
				f.Checks, err = checks(ctx, s.Cluster, every)
				return err
			})
			readSource(ctx, s.Within, &f.Cluster, func(ctx context.Context) (err error) {
				f.Runs, f.Refused, err = chains(ctx, s.Cluster)
				return err
			})
		}
	})
	both.Go(func() { f.Pause = s.pause(ctx) })
	both.Wait()
	return f
}

// newestReports is how many reports about nodes without a live publisher are read.
const newestReports = 2000

// newestFaults is how many verdicts are read to see whether fault-quarantine is in dry-run mode.
const newestFaults = 200

// actingFaults are those that get verdicts.
var actingFaults = record.Selector{Name: "EvaluatedFaults", Strategy: record.Process, Healthy: record.No()}

// orphanedFaults are the open faults whose publisher has switched to PERSIST_ONLY.
func (s Sources) orphanedFaults(ctx context.Context, open []record.Record) ([]timeline.OrphanedFault, error) {
	found, err := store.FindOrphaned(ctx, s.Records, open)
	var out []timeline.OrphanedFault
	for _, f := range found {
		e := f.Open.Event
		out = append(out, timeline.OrphanedFault{
			Node: e.NodeName, Agent: e.Agent, Check: e.CheckName, Record: f.Open.ID, Newest: f.Newest.ID, At: f.Newest.CreatedAt,
		})
	}
	return out, err
}

// outOfService are the records for which a node was taken out of service, or left
// where it was, and those that put it back.
func outOfService(node string) record.Selector {
	return record.Selector{Name: "OutOfService", Node: node, Quarantined: []record.Quarantine{
		record.Quarantined, record.AlreadyQuarantined, record.UnQuarantined, record.QuarantineCanceled,
	}}
}

// records are the newest records of a node, and of those for which it was out of service,
// all that are open or not evaluated, and the recoveries that cleared them; older reports
// whether there are more. A node that reports a thousand things hides none of its
// quarantine sessions.
func (s Sources) records(ctx context.Context, node string) (out []record.Record, older bool, err error) {
	have := map[string]bool{}
	add := func(list []record.Record) {
		for _, r := range list {
			if !have[r.ID] {
				have[r.ID] = true
				out = append(out, r)
			}
		}
	}
	newest, err := s.Records.List(ctx, store.Query{
		Selector: record.Selector{Name: "node", Node: node}, Order: store.ByAppendDescending, Limit: s.Limit,
	})
	if err != nil {
		return nil, false, err
	}
	add(newest)
	stays, err := s.Records.List(ctx, store.Query{Selector: outOfService(node), Order: store.ByAppendDescending, Limit: s.Limit})
	if err != nil {
		return nil, false, err
	}
	add(stays)
	for _, sel := range []record.Selector{record.OpenOfNode(node), record.BacklogOfNode(node)} {
		list, err := s.Records.List(ctx, store.Query{Selector: sel})
		if err != nil {
			return nil, false, err
		}
		add(list)
	}
	for _, id := range referred(out) {
		r, err := store.FindOf(ctx, s.Records, node, id)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUndecodable) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		add([]record.Record{r})
	}
	return out, len(newest) == s.Limit, nil
}

// referred are the records that others name as what cleared or repaired them.
func referred(records []record.Record) []string {
	have := map[string]bool{"": true}
	for _, r := range records {
		have[r.ID] = true
	}
	var out []string
	add := func(id string) {
		if _, err := uuid.Parse(id); err == nil && !have[id] {
			have[id] = true
			out = append(out, id)
		}
	}
	for _, r := range records {
		for _, f := range r.Status.Faults {
			add(f.ClearedBy)
		}
		if rem := r.Status.Remediation; rem != nil {
			add(rem.Cause)
		}
	}
	return out
}

// feeds are the consumers' selectors; the first three always run.
var feeds = []struct {
	name     string
	always   bool
	selector record.Selector
}{
	{"fault-quarantine", true, record.ProcessableHealthEventInserts()},
	{"node-drainer", true, record.NodeQuarantineStatus()},
	{"fault-remediation", true, record.QuarantinedAndDrainedNodes()},
	{record.AnalyzerAgent, false, record.ProcessableNonFatalUnhealthyInserts()},
	{record.AnalyzerAgent + "-causes", false, record.AnalyzerCauses()},
	{"event-exporter", false, record.AllHealthEventInserts()},
	// Of this suite's cluster-wide publishers; the records of agents that a
	// configuration adds are not counted here.
	{"platform-connectors-cluster", false, record.Selector{Name: "ClusterWide", Strategy: record.Process, Any: []record.Selector{
		{Agent: "csp-health-monitor"}, {Agent: "kubernetes-object-monitor"}, {Agent: record.AnalyzerAgent},
	}}},
}

// consumers returns how far behind every consumer is that runs or ever committed; the
// error is about those that could not be asked.
func (s Sources) consumers(ctx context.Context) ([]timeline.Consumer, error) {
	list, err := s.Records.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	stored := map[string]store.Consumer{}
	for _, c := range list {
		stored[c.Name] = c
	}
	var out []timeline.Consumer
	var problems []error
	for _, f := range feeds {
		at, ok := stored[f.name]
		if !ok && !f.always {
			continue
		}
		delete(stored, f.name)
		c := timeline.Consumer{Name: f.name, CommittedAt: at.CommittedAt}
		lag, err := s.Records.Lag(ctx, f.name, f.selector, s.Limit)
		if err != nil {
			problems, c.Problem = append(problems, err), "its lag could not be read"
		} else {
			c.Known, c.Waiting, c.More, c.Oldest, c.Lost = true, lag.Pending, lag.Pending == s.Limit, lag.Oldest, lag.Lost
		}
		out = append(out, c)
	}
	for _, c := range list {
		if _, ok := stored[c.Name]; ok {
			out = append(out, timeline.Consumer{Name: c.Name, CommittedAt: c.CommittedAt, Problem: "unknown consumer: its records cannot be counted"})
		}
	}
	return out, errors.Join(problems...)
}
