// Package nodeconnector wires the connector of a node: the socket, the spool, the
// way of its records to the gateways, and the conditions of its Node. It links no
// database.
package nodeconnector

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/ingest"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/sink"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/transform"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
)

// late is the age of the oldest unreleased event from which on the connector is
// not ready: it accepts, but nobody downstream sees anything.
const late = 5 * time.Minute

// nearlyFull is the percentage of the spool's bound from which on the connector
// is not ready: soon publishers have to wait.
const nearlyFull = 90

// identityDeadline bounds the reading of one Node.
const identityDeadline = 3 * time.Second

// queue is the spool with what belongs to it.
type queue struct {
	spool   *spool.Spool
	stored  *spool.Reader // registered before any other reader can release
	metrics *spool.Metrics
}

func openSpool(d *daemon.Daemon, cfg Config) (queue, error) {
	metrics := spool.NewMetrics(d.Registry)
	s, err := spool.Open(spool.Options{
		Dir: cfg.SpoolDir, MaxBytes: cfg.SpoolMaxBytes, Clock: d.Clock, Log: d.Log, Metrics: metrics,
	})
	if err != nil {
		return queue{}, err
	}
	d.OnStop("write-ahead log", func(context.Context) error { return s.Close() })
	d.Ready("write-ahead log", func() (bool, string) {
		oldest, waiting := s.Oldest(), s.Bytes()
		return oldest < late && waiting < s.MaxBytes()/100*nearlyFull,
			fmt.Sprintf("%d of %d bytes pending, the oldest event for %s", waiting, s.MaxBytes(), oldest.Round(time.Second))
	})
	return queue{s, s.Reader("store"), metrics}, nil
}

// openNode knows the node's machine; without Kubernetes, only as it was last seen.
func openNode(d *daemon.Daemon, cfg Config) (node *nodeclient.OwnNode, client *nodeclient.Client, err error) {
	if cfg.Kubernetes {
		if client, err = nodeclient.Connect(cfg.Kube, "platform-connectors/"+d.Version); err != nil {
			return nil, nil, err
		}
	}
	node, err = nodeclient.OpenOwnNode(cfg.NodeName, filepath.Join(cfg.SpoolDir, "node.json"), client, d.Log)
	return node, client, err
}

// openGateway opens the way to the gateways, and keeps what they acknowledge.
func openGateway(d *daemon.Daemon, cfg Config, open opening, q queue) (destination, error) {
	dest, err := open()
	if err != nil {
		return nil, err
	}
	dest = keeping(d, cfg, dest, q)
	d.OnStop("store", func(context.Context) error { return dest.Close() })
	return dest, nil
}

// openPipeline reads the stages that change events behind the spool.
func openPipeline(d *daemon.Daemon, cfg Config, node *nodeclient.OwnNode, client *nodeclient.Client) (*transform.Runner, error) {
	stages, err := transform.Open(transform.Options{
		File: cfg.Pipeline, PersistOnlyToProcess: cfg.PersistOnlyToProcess, ClusterWide: cfg.Publishers.Policy(cfg.NodeName).ClusterAgents(),
		Clock: d.Clock, Log: d.Log, Metrics: transform.NewMetrics(d.Registry),
		Nodes: &transform.Cluster{Own: cfg.NodeName, Object: node.Object, Client: client, Clock: d.Clock, Log: d.Log},
	})
	if err != nil {
		return nil, err
	}
	d.Go("pipeline", stages.Run)
	d.Ready("pipeline", stages.Ready)
	return stages, nil
}

func newSender(d *daemon.Daemon, q queue, dest destination, stages *transform.Runner, notices *forwarder.Notices) *forwarder.Sender {
	return &forwarder.Sender{
		Sink: dest, Transform: stages, Notices: notices, Clock: d.Clock, Log: d.Log,
		Metrics: forwarder.NewMetrics(d.Registry, q.metrics.DeadLetters.WithLabelValues(spool.DeadRefused)),
	}
}

// newNotices returns what shows people the state of the node's events.
func newNotices(d *daemon.Daemon, node *nodeclient.OwnNode, client *nodeclient.Client) *forwarder.Notices {
	n := &forwarder.Notices{Node: node.Object, Client: client, Clock: d.Clock, Log: d.Log}
	d.Go("notices", n.Run)
	return n
}

// newForwarder is made before anybody reads the spool, which tries each event with it.
func newForwarder(d *daemon.Daemon, q queue, node *nodeclient.OwnNode, sender *forwarder.Sender, tally *forwarder.Tally) *forwarder.Forwarder {
	f := &forwarder.Forwarder{
		Spool: q.spool, Reader: q.stored, Sender: sender, Identity: node.Identity, Tally: tally, Clock: d.Clock, Log: d.Log,
	}
	q.spool.Try(f.Try)
	return f
}

func startForwarder(d *daemon.Daemon, f *forwarder.Forwarder) {
	d.Go("replay", f.Run)
	d.Ready("replay", func() (bool, string) {
		_, detail := f.Ready() // the age of the spool shows when it is too late
		return true, detail
	})
}

// watchDelivery shows that events do not reach the store.
func watchDelivery(d *daemon.Daemon, p parts, f *forwarder.Forwarder, notices *forwarder.Notices) {
	w := &sink.DeliveryWatch{
		Backlog: f.Backlog, OnLate: func() { notices.Add(forwarder.EventsWaiting, 1) },
		Node: p.node.Object, Client: p.client, Clock: d.Clock, Log: d.Log,
	}
	w.Register(d.Registry)
	d.Go("delivery", w.Run)
}

// reportFatal reports events that killed this process in lives before this one.
func reportFatal(d *daemon.Daemon, cfg Config, p parts) {
	f := &forwarder.Fatal{
		Spool: p.queue.spool, Sink: p.dest, NodeName: cfg.NodeName, Node: p.node.Object, Client: p.client, Clock: d.Clock, Log: d.Log,
	}
	d.Go("crash reports", f.Run)
}

// newTally counts repeats until the Node reports that one of its faults is over.
func newTally(d *daemon.Daemon, cfg Config, node *nodeclient.OwnNode, stages *transform.Runner) *forwarder.Tally {
	tally := forwarder.NewTally(cfg.RepeatWindow, &forwarder.Tally{Shape: stages.Change, Clock: d.Clock}, d.Registry)
	node.OnChange(func() { tally.See(node.Object()) })
	return tally
}

// newAuthenticator knows the callers; without Kubernetes it refuses every token.
func newAuthenticator(d *daemon.Daemon, cfg Config, client *nodeclient.Client) (*authn.Authenticator, error) {
	owners, err := authn.OpenOwners(filepath.Join(cfg.SpoolDir, "owners.json"), d.Log)
	if err != nil {
		return nil, err
	}
	g := &authn.Authenticator{Policy: cfg.Publishers.Policy(cfg.NodeName), Owners: owners}
	if p := cfg.Publishers; p.Tokens != authn.TokensOff {
		var reviews nodeclient.TokenReviews
		if client != nil {
			reviews = client.TokenReviews
		}
		g.Tokens = authn.NewReview(reviews, authn.Verification{Audience: p.Audience, CacheTTL: p.TokenCacheTTL}, d.Clock, d.Registry)
	}
	g.Register(d.Registry)
	return g, nil
}

// identityOf reads the machine behind a node's name from the API server; a
// record without one is bound to its machine when it is evaluated.
func identityOf(client *nodeclient.Client, log *slog.Logger) func(context.Context, string) record.NodeIdentity {
	return func(ctx context.Context, node string) record.NodeIdentity {
		if client == nil {
			return record.NodeIdentity{}
		}
		ctx, cancel := context.WithTimeout(ctx, identityDeadline)
		defer cancel()
		object, err := client.Nodes.Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			log.Warn("event of a cluster-wide publisher stored without the machine of its node", "node", node, "error", err)
			return record.NodeIdentity{}
		}
		return nodeclient.Identity(object)
	}
}

// parts are what the Kubernetes sink and the reporters of events need.
type parts struct {
	queue  queue
	node   *nodeclient.OwnNode
	client *nodeclient.Client
	stages *transform.Runner
	dest   destination
}

func startSink(d *daemon.Daemon, cfg Config, p parts) {
	metrics := sink.NewMetrics(d.Registry)
	fold := &sink.Fold{
		Path:  filepath.Join(cfg.SpoolDir, "faults.json"),
		Spool: p.queue.spool, Reader: p.queue.spool.Reader("kubernetes"), Store: p.dest,
		Identity: p.node.Identity, Change: p.stages.Change, Elsewhere: cfg.Publishers.Policy(cfg.NodeName).ClusterAgents(), Clock: d.Clock, Log: d.Log, Metrics: metrics,
	}
	fold.Load()
	push := &sink.Push{
		View: fold.View, OnReported: fold.RemoveReported, Node: p.node.Object, Client: p.client,
		Clock: d.Clock, Log: d.Log, Metrics: metrics,
	}
	notify := push.Waker()
	fold.OnChange(notify)
	p.node.OnChange(notify)
	dismissals := &sink.Dismissals{Fold: fold, Path: record.ClearedPath(cfg.Socket), Node: p.node.Object}
	p.node.OnChange(dismissals.Waker())
	d.Go("dismissals", dismissals.Run)
	reminder := &forwarder.Replayer{Node: p.node.Object, Stored: fold.Stored, Sink: p.dest, Client: p.client, Clock: d.Clock, Log: d.Log}
	reminder.Register(d.Registry)
	p.node.OnChange(reminder.Waker())
	d.Go("fault resync", reminder.Run)
	bird := &Canary{NodeName: cfg.NodeName, Socket: cfg.Socket, Node: p.node.Object, Clock: d.Clock, Log: d.Log}
	p.node.OnChange(bird.Waker())
	d.Go("canary", bird.Run)
	d.Go("node watch", p.node.Run)
	p.queue.spool.Try(fold.Try)
	d.Go("fault set", fold.Run)
	d.Go("conditions", push.Run)
}

// opening opens where records go, for as long as it takes; it registers its metrics.
type opening func() (destination, error)

// Build wires the walk of an event: socket, spool, then gateways and Kubernetes.
func Build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	return build(ctx, d, cfg, func() (destination, error) {
		return upstream.Open(cfg.Gateway, d.Log)
	})
}

// build is Build with another destination. The spool closes last, after everything that
// uses it has ended.
func build(ctx context.Context, d *daemon.Daemon, cfg Config, open opening) error {
	queue, err := openSpool(d, cfg)
	if err != nil {
		return err
	}
	node, client, err := openNode(d, cfg)
	if err != nil {
		return err
	}
	stages, err := openPipeline(d, cfg, node, client)
	if err != nil {
		return err
	}
	follower := newFollower(d, cfg, queue, node, stages)
	tally := newTally(d, cfg, node, stages)
	dest, err := openGateway(d, cfg, open, queue)
	if err != nil {
		return err
	}
	notices := newNotices(d, node, client)
	sender := newSender(d, queue, dest, stages, notices)
	forward := newForwarder(d, queue, node, sender, tally)
	p := parts{queue, node, client, stages, dest}
	if client != nil {
		startSink(d, cfg, p)
	}
	startForwarder(d, forward)
	watchDelivery(d, p, forward, notices)
	startFollower(d, follower)
	reportFatal(d, cfg, p)
	authenticator, err := newAuthenticator(d, cfg, client)
	if err != nil {
		return err
	}

	listener, err := ingest.Listen(ctx, cfg.Socket, fs.FileMode(cfg.SocketMode))
	if err != nil {
		return err
	}
	server := &ingest.Server{
		NodeName: cfg.NodeName, Spool: queue.spool, Authenticator: authenticator, Direct: sender,
		Identity: node.Identity, IdentityOf: identityOf(client, d.Log),
		Rejected: func(problem string, events int) { notices.AddDetail(forwarder.EventsRejected, problem, events) },
		Clock:    d.Clock, Log: d.Log, Metrics: ingest.NewMetrics(d.Registry),
	}
	server.EarlierNumbers(cfg.Publishers.Policy(cfg.NodeName).EarlierAgents()...)
	d.Go("ingest", func(ctx context.Context) error { return ingest.Serve(ctx, listener, server) })
	return nil
}
