package cloud

import (
	"context"

	"github.com/google/uuid"
)

// Signal is one request to a cloud.
type Signal struct {
	// Machine as in spec.providerID of its Node.
	Machine string
	// Terminate gives the machine back; otherwise it is rebooted.
	Terminate bool
	// Force does not wait for the operating system, if the cloud can do so.
	Force bool
	// ID names the signal: a repetition has the same, also after a restart. A cloud
	// that remembers it carries the signal out once.
	ID uuid.UUID
}

// AsyncProvider is a cloud that makes an operation of each signal and reports how it
// goes. What the comments of Provider require holds here too.
type AsyncProvider interface {
	State(ctx context.Context, machine string) (State, error)
	Canonical(machine string) (string, error)
	Identity(ctx context.Context, machine string) (Identity, error)
	// Begin returns when the cloud took the signal, with the name of its operation;
	// empty if the cloud has none.
	Begin(ctx context.Context, s Signal) (operation string, err error)
	// Progress returns how an operation goes. One that failed is an error,
	// FailedPrecondition with the cloud's words.
	Progress(ctx context.Context, machine, operation string) (Progress, error)
}

// Progress is how an operation goes.
type Progress string

// Progress.
const (
	// UnknownOperation: the cloud does not know it any more, or never reported its name.
	// The boot id and the machine's state decide.
	UnknownOperation Progress = "Untold"
	// Running: it is not over.
	Running Progress = "Running"
	// Over: it has done what it was for.
	Over Progress = "Over"
)

// direct is a Provider without operations.
type direct struct{ Provider }

func (d direct) Begin(ctx context.Context, s Signal) (string, error) {
	if s.Terminate {
		return "", d.Terminate(ctx, s.Machine, s.Force)
	}
	return "", d.Reboot(ctx, s.Machine, s.Force)
}

func (direct) Progress(context.Context, string, string) (Progress, error) {
	return UnknownOperation, nil
}

// signals is the namespace of the ids of signals.
var signals = uuid.MustParse("6f1f2b0e-7c0d-5f53-9a43-0e1c4f7b9d21")

// signal is the request to the cloud for a key. Its id is made of the request id,
// which is that of the key and the boot, and is written down before.
func (r idempotencyRecord) signal(force bool) Signal {
	return Signal{
		Machine: r.Machine, Terminate: r.Verb == terminate, Force: force,
		ID: uuid.NewSHA1(signals, []byte(r.RequestID)),
	}
}

// progress asks for the operation of a request, if one was written down.
func (p *Plugin) progress(ctx context.Context, r request) (Progress, error) {
	known, err := p.Memory.of(ctx, r)
	if err != nil || known == nil || known.Operation == "" {
		return UnknownOperation, err
	}
	return p.Provider.Progress(ctx, known.Machine, known.Operation)
}
