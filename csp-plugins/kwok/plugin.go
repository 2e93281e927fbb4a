package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// Options of a plugin.
type Options struct {
	Machines Machines
	// RebootTime is how long a machine has no power, and how long one that is
	// terminated is still there.
	RebootTime time.Duration
	// FaultFile names faults by node, as JSON; it may come and go.
	FaultFile string
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   *Metrics
}

// Plugin serves simulated machines.
type Plugin struct {
	v1.UnimplementedCSPPluginServiceServer
	Options

	mu      sync.Mutex
	journal *AuditLog
	keys    map[string]*job
	// lines are the unfinished jobs of a node in order.
	lines map[string][]*job
	// terminated are the uids of the Nodes whose machine was terminated.
	terminated map[string]bool
	running    context.Context // nil before Run
	workers    sync.WaitGroup
}

// job is one accepted reboot or termination.
type job struct {
	Entry
	stall bool
	// replaced is closed when another job stands behind a stalled one.
	replaced chan struct{}
	// offAt is when the machine went down; zero before.
	offAt    time.Time
	rebooted bool
	over     bool
}

// New makes the plugin from its books' entries.
func New(journal *AuditLog, entries []Entry, o Options) *Plugin {
	p := &Plugin{Options: o, journal: journal, keys: map[string]*job{}, lines: map[string][]*job{}, terminated: map[string]bool{}}
	byID, jobs := map[string]*job{}, []*job(nil)
	for _, e := range entries {
		switch e.Effect {
		case Accepted, Lied:
			j := p.remember(e)
			byID[e.RequestID], jobs = j, append(jobs, j)
		case PoweredOff, Rebooted, Completed, Superseded, NodeGone, Terminated:
			if j := byID[e.RequestID]; j != nil {
				p.progress(j, e)
			}
		case Duplicate, Failed, Hung:
		}
	}
	for _, j := range jobs {
		p.line(j)
	}
	return p
}

// remember makes an entry a job and files it by its key.
func (p *Plugin) remember(e Entry) *job {
	j := &job{Entry: e, stall: e.Fault == string(Stall), over: e.Effect == Lied, replaced: make(chan struct{})}
	if j.Key != "" {
		p.keys[j.Key] = j
	}
	return j
}

// line appends an unfinished job to its node's line.
func (p *Plugin) line(j *job) {
	if j.over {
		return
	}
	line := p.lines[j.Node]
	if len(line) > 0 {
		close(line[len(line)-1].replaced)
	}
	p.lines[j.Node] = append(line, j)
}

// progress takes an entry about a job into account.
func (p *Plugin) progress(j *job, e Entry) {
	switch e.Effect { //nolint:exhaustive // the others are not about a job's course
	case PoweredOff:
		j.offAt = e.Time
	case Rebooted:
		j.rebooted = true
	case Terminated:
		j.over, p.terminated[j.UID] = true, true
	case Completed, Superseded, NodeGone:
		j.over = true
	}
}

// SendRebootSignal accepts a reboot and answers at once.
func (p *Plugin) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	id, err := p.signal(ctx, Entry{Verb: verbReboot, Node: req.GetNodeName(), Key: req.GetIdempotencyKey()})
	return &v1.SendRebootSignalResponse{RequestId: id}, err
}

// SendTerminateSignal accepts a termination and answers at once.
func (p *Plugin) SendTerminateSignal(ctx context.Context, req *v1.SendTerminateSignalRequest) (*v1.SendTerminateSignalResponse, error) {
	id, err := p.signal(ctx, Entry{Verb: verbTerminate, Node: req.GetNodeName(), Key: req.GetIdempotencyKey()})
	return &v1.SendTerminateSignalResponse{RequestId: id}, err
}

// signal accepts what e asks for, or does what a fault asks for.
func (p *Plugin) signal(ctx context.Context, e Entry) (string, error) {
	if e.Node == "" {
		return "", status.Error(codes.InvalidArgument, "node_name is empty")
	}
	node, err := p.simulated(ctx, e.Node)
	if err != nil {
		if id, known, err := p.repeated(e); known {
			return id, err
		}
		return "", err
	}
	fault, err := faultOf(node, p.FaultFile)
	if err != nil {
		return "", status.Error(codes.FailedPrecondition, err.Error())
	}
	e.UID, e.Fault = string(node.UID), string(fault.Kind)
	switch fault.Kind {
	case Fail:
		e.Effect = Failed
		if err := p.enter(e); err != nil {
			return "", err
		}
		return "", status.Error(fault.Code, "simulated failure")
	case Hang:
		e.Effect = Hung
		return "", silence(ctx, p.enter(e))
	case NoFault, Mute, Stall, Lie:
	}
	id, err := p.accept(e)
	if err == nil && fault.Kind == Mute {
		return "", silence(ctx, nil)
	}
	return id, err
}

// silence answers nothing until the caller gives up.
func silence(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// IsNodeReady reports whether no reboot of the node is under way.
func (p *Plugin) IsNodeReady(ctx context.Context, req *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	if _, err := p.simulated(ctx, req.GetNodeName()); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range p.lines[req.GetNodeName()] {
		if !j.rebooted {
			return &v1.IsNodeReadyResponse{}, nil
		}
	}
	return &v1.IsNodeReadyResponse{IsReady: true}, nil
}

// simulated reads a Node and refuses one that is not simulated: nobody's real
// node is to be tampered with.
func (p *Plugin) simulated(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := p.Machines.node(ctx, name)
	switch {
	case errors.Is(err, errNodeDeleted):
		return nil, status.Errorf(codes.NotFound, "node %q does not exist", name)
	case err != nil:
		return nil, status.Error(codes.Aborted, err.Error())
	case node.Annotations[simulatedAnnotation] != simulatedValue:
		return nil, status.Errorf(codes.FailedPrecondition, "node %q is not simulated", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminated[string(node.UID)] {
		return nil, status.Errorf(codes.NotFound, "the machine of node %q was terminated", name)
	}
	return node, nil
}

// repeated answers a request whose key was executed, whatever became of the
// machine since.
func (p *Plugin) repeated(e Entry) (id string, known bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[e.Key] == nil {
		return "", false, nil
	}
	id, err = p.repeat(p.keys[e.Key], e)
	return id, true, err
}

// repeat is the answer to the repetition of a job. The caller holds the lock.
func (p *Plugin) repeat(j *job, e Entry) (string, error) {
	if j.Node != e.Node || j.Verb != e.Verb {
		return "", status.Errorf(codes.InvalidArgument, "the key was already used for %s of node %q", j.Verb, j.Node)
	}
	e.Effect, e.RequestID = Duplicate, j.RequestID
	return j.RequestID, p.write(&e)
}

// accept files a request, or finds the one with the same key.
func (p *Plugin) accept(e Entry) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.keys[e.Key]; known != nil {
		return p.repeat(known, e)
	}
	e.Effect, e.RequestID = Accepted, map[string]string{verbReboot: "reboot-", verbTerminate: "termination-"}[e.Verb]+uuid.NewString()
	if e.Fault == string(Lie) {
		e.Effect = Lied
	} else if e.Verb == verbReboot {
		e.BootID = uuid.NewString()
	}
	if err := p.write(&e); err != nil {
		return "", err
	}
	j := p.remember(e)
	p.line(j)
	if !j.over && len(p.lines[e.Node]) == 1 {
		p.work(e.Node)
	}
	return e.RequestID, nil
}

// enter writes an entry that nothing follows from.
func (p *Plugin) enter(e Entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.write(&e)
}

// write adds the time to an entry and stores it; without it nothing is done.
func (p *Plugin) write(e *Entry) error {
	e.Time = p.Clock.Now().UTC()
	if err := p.journal.Write(*e); err != nil {
		return status.Error(codes.Aborted, err.Error())
	}
	p.Metrics.entries.WithLabelValues(string(e.Effect)).Inc()
	p.Log.Info("request recorded", "verb", e.Verb, "node", e.Node, "key", e.Key, "request", e.RequestID, "effect", e.Effect, "fault", e.Fault)
	return nil
}
