// Package cloud makes a provider plugin of three calls to a cloud: it finds the machine
// behind a Node, executes each idempotency key once, and derives the state of a machine
// under repair from the Node and the cloud together.
//
// A new cloud is one folder with a Provider or an AsyncProvider and a page of main.
package cloud

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// State is what a cloud reports about a machine.
type State string

// States.
const (
	// Up: the machine runs and passes the cloud's checks.
	Up State = "Up"
	// NotUp: it does not, or not yet.
	NotUp State = "NotUp"
	// Gone: it was released, or the cloud has no such machine.
	Gone State = "Gone"
)

// Provider is one cloud. A machine is named as in spec.providerID of its Node.
// Its errors are answers to the janitor: gRPC statuses with the meaning that
// csp_plugin.proto gives them.
type Provider interface {
	// State returns how a machine is.
	State(ctx context.Context, machine string) (State, error)
	// Canonical is the one name of a machine, however spec.providerID writes it. It is
	// an error of Malformed for one of something else.
	Canonical(machine string) (string, error)
	// Identity is what the cloud reports about a machine.
	Identity(ctx context.Context, machine string) (Identity, error)
	// Reboot and Terminate return when the cloud took the request. They never
	// repeat a request by themselves. Force does not wait for the operating
	// system, if the cloud can do so.
	Reboot(ctx context.Context, machine string, force bool) error
	Terminate(ctx context.Context, machine string, force bool) error
}

// Plugin serves the machines of one cloud.
type Plugin struct {
	v1.UnimplementedCSPPluginServiceServer
	Provider AsyncProvider
	// Client reads Nodes.
	Client kubernetes.Interface
	// Proof defines how a Node is verified as the Node of a machine.
	Proof Proof
	// Memory remembers the keys.
	Memory  Memory
	Log     *slog.Logger
	Metrics *Metrics

	mu   sync.Mutex
	busy map[string]*sync.Mutex // by key
}

// SendRebootSignal asks the cloud to reboot a machine.
func (p *Plugin) SendRebootSignal(ctx context.Context, q *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	id, err := p.signal(ctx, operationRequest{verb: reboot, node: q.GetNodeName(), key: q.GetIdempotencyKey(), force: q.GetForce()})
	return &v1.SendRebootSignalResponse{RequestId: id}, err
}

// SendTerminateSignal asks the cloud to take a machine back.
func (p *Plugin) SendTerminateSignal(ctx context.Context, q *v1.SendTerminateSignalRequest) (*v1.SendTerminateSignalResponse, error) {
	if _, ok := p.hardware(); ok {
		return nil, status.Error(codes.Unimplemented, "this provider does not replace machines")
	}
	id, err := p.signal(ctx, operationRequest{verb: terminate, node: q.GetNodeName(), key: q.GetIdempotencyKey(), force: q.GetForce()})
	return &v1.SendTerminateSignalResponse{RequestId: id}, err
}

// IsNodeReady reports whether a machine is up: by the cloud, by the end of its own
// operation, and after a reboot by another boot id of its Node, because a machine
// that reboots is up for a cloud.
func (p *Plugin) IsNodeReady(ctx context.Context, q *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	asked, named := parseRequest(q.GetRequestId())
	node, machine, err := p.node(ctx, q.GetNodeName())
	if err != nil && (!named || status.Code(err) != codes.FailedPrecondition) {
		return nil, err
	}
	if !named {
		asked.machine = machine
	}
	state, err := p.Provider.State(ctx, asked.machine)
	if err != nil {
		return nil, err
	}
	operation := UnknownOperation
	if state != Gone {
		if operation, err = p.progress(ctx, asked); err != nil {
			return nil, err
		}
	}
	switch {
	case state == Gone, asked.verb == terminate && operation == Over && asked.shownBy(node):
		return nil, status.Errorf(codes.NotFound, "machine %q does not exist", asked.machine)
	case state != Up || node == nil || operation == Running:
		return &v1.IsNodeReadyResponse{}, nil
	case asked.verb == reboot && node.Status.NodeInfo.BootID == asked.boot:
		return &v1.IsNodeReadyResponse{}, nil
	}
	return &v1.IsNodeReadyResponse{IsReady: true}, nil
}

// shownBy reports whether a Node, if it is there at all, still shows the boot that
// was there at the signal. A cloud may make a new machine under the old name, and
// that machine's Node is not a leftover.
func (r request) shownBy(node *corev1.Node) bool {
	return node == nil || node.Status.NodeInfo.BootID == r.boot
}

// signal executes what was asked, once per key.
func (p *Plugin) signal(ctx context.Context, a operationRequest) (string, error) {
	if a.node == "" {
		return "", status.Error(codes.InvalidArgument, "node_name is empty")
	}
	defer p.lock(a.key)()
	known, err := p.Memory.recall(ctx, a.key)
	if err != nil {
		return "", err
	}
	if known != nil && known.Executed {
		return known.RequestID, a.same(*known)
	}
	node, machine, err := p.node(ctx, a.node)
	if err != nil {
		return "", err
	}
	if known != nil {
		return known.RequestID, p.resume(ctx, a, *known, node, machine)
	}
	mark, err := p.inspect(ctx, node, machine, true)
	if err != nil {
		return "", err
	}
	now := idempotencyRecord{Verb: a.verb, Node: a.node, Machine: machine, BootID: node.Status.NodeInfo.BootID, Mark: mark}
	if known, err = p.Memory.intend(ctx, a.key, now, node); err != nil {
		return "", err
	}
	return known.RequestID, p.execute(ctx, a, *known, now)
}

// resume goes on with a key whose end is not known: it may have taken effect. A
// machine that was there when the key was written down, was to be terminated and is
// gone was terminated.
func (p *Plugin) resume(ctx context.Context, a operationRequest, r idempotencyRecord, node *corev1.Node, machine string) error {
	if err := a.same(r); err != nil {
		return err
	}
	if r.Machine != machine {
		return status.Errorf(codes.FailedPrecondition, "node %q has machine %q now and had %q before", a.node, machine, r.Machine)
	}
	mark, err := p.inspect(ctx, node, machine, false)
	switch {
	case status.Code(err) == codes.NotFound && a.verb == terminate:
		return p.Memory.executed(ctx, r)
	case err != nil:
		return err
	}
	return p.execute(ctx, a, r, idempotencyRecord{BootID: node.Status.NodeInfo.BootID, Mark: mark})
}

// inspect refuses a machine that is gone or may not be the Node's. A cloud is
// believed once for each key, hardware is examined each time. The mark is that of
// Hardware.
func (p *Plugin) inspect(ctx context.Context, node *corev1.Node, machine string, first bool) (mark string, err error) {
	if hardware, ok := p.hardware(); ok {
		return p.examine(ctx, hardware, machine, node)
	}
	state, err := p.Provider.State(ctx, machine)
	switch {
	case err != nil:
		return "", nothingDone(err)
	case state == Gone:
		return "", status.Errorf(codes.NotFound, "machine %q does not exist", machine)
	case first:
		return "", p.believe(ctx, node)
	}
	return "", nil
}

// execute sends the request to the cloud. An earlier try of the same key whose end is not known
// has taken effect if the boot id or the mark of what is there now shows it.
func (p *Plugin) execute(ctx context.Context, a operationRequest, r, now idempotencyRecord) error {
	switch {
	case a.verb == reboot && now.resetSince(r):
		p.Log.Info("machine already reset since the first request with this key", "node", a.node, "machine", r.Machine, "key", a.key, "request", r.RequestID)
		return p.Memory.executed(ctx, r)
	case now.BootID != r.BootID:
		// Perhaps the cloud made a new machine under the old name.
		return status.Errorf(codes.Unavailable, "node %q reports another boot than at the time of the request to terminate machine %q", a.node, r.Machine)
	}
	operation, err := p.Provider.Begin(ctx, r.signal(a.force))
	p.Log.Info("cloud request sent", "verb", a.verb, "node", a.node, "machine", r.Machine, "key", a.key, "request", r.RequestID, "operation", operation, "error", err)
	if err != nil {
		return err
	}
	r.Operation = operation
	if err := p.Memory.executed(ctx, r); err != nil {
		p.Log.Warn("save of an executed key failed, the boot ID is used instead", "key", a.key, "error", err)
	}
	return nil
}

// node reads a Node and names its machine.
func (p *Plugin) node(ctx context.Context, name string) (*corev1.Node, string, error) {
	if name == "" {
		return nil, "", status.Error(codes.InvalidArgument, "node_name is empty")
	}
	node, err := p.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// Not NOT_FOUND: the absence of the Node proves nothing about its machine.
		return nil, "", status.Errorf(codes.FailedPrecondition, "node %q does not exist or has no provider ID", name)
	case err != nil:
		return nil, "", status.Errorf(codes.Aborted, "reading node %q: %v", name, err)
	}
	machine := node.Spec.ProviderID
	if hardware, ok := p.hardware(); ok {
		if machine, err = hardware.Machine(node); err != nil {
			return nil, "", err
		}
	} else if machine == "" {
		return nil, "", status.Errorf(codes.FailedPrecondition, "node %q has no spec.providerID", name)
	}
	return node, machine, nil
}

// nothingDone turns a doubtful answer to a question before the signal into Aborted: the
// signal itself was not sent.
func nothingDone(err error) error {
	if err == nil {
		return nil
	}
	switch status.Code(err) { //nolint:exhaustive // the others say it themselves
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unknown, codes.Internal:
		return status.Error(codes.Aborted, "verifying before the request: "+status.Convert(err).Message())
	}
	return err
}

// lock makes calls with one key wait for each other and returns the unlock.
func (p *Plugin) lock(key string) func() {
	if key == "" {
		return func() {}
	}
	p.mu.Lock()
	if p.busy == nil {
		p.busy = map[string]*sync.Mutex{}
	}
	if p.busy[key] == nil {
		p.busy[key] = &sync.Mutex{}
	}
	one := p.busy[key]
	p.mu.Unlock()
	one.Lock()
	return one.Unlock
}

// Malformed is the answer to a providerID that names no machine of the cloud.
func Malformed(machine, want string) error {
	return status.Errorf(codes.FailedPrecondition, "spec.providerID %q is not a machine of this cloud, it must be %s", machine, want)
}
