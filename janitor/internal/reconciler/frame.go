package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// raceWait is how long a controller waits after a lost race before it reads again.
const raceWait = 50 * time.Millisecond

// Deps are what the controllers of all kinds work with.
type Deps struct {
	// Objects reads and writes repair objects at the API server, without a cache:
	// an old copy of an object that is over would claim its node again.
	Objects client.Client
	// Nodes reads and writes Nodes, and what a kind needs beside them, in the same way.
	Nodes kubernetes.Interface
	// Pause is the emergency stop; nil is never on.
	Pause *pause.Switch
	// Excluded are the nodes that are left alone besides those that are opted
	// out by their label.
	Excluded []labels.Selector
	// Events writes what people should see; nil writes nothing.
	Events  *eventrecorder.Recorder
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
}

// Traits are what one kind has of its own. O is its object, F what a decision depends on
// besides object and Node.
type Traits[O client.Object, F any] struct {
	// Name of the kind, for example RebootNode. Action is the label action_type of the
	// metrics.
	Name, Action string
	// MaxSteps bounds the steps of a pass.
	MaxSteps int
	// Fresh reads everything again before each step.
	Fresh  bool
	Object func() O
	List   func() client.ObjectList
	// NodeOf names the Node of an object; Completed reports whether its outcome is final.
	NodeOf    func(O) string
	Completed func(O) bool
	// Read completes the facts of a pass; nil reads nothing more.
	Read func(context.Context, *Pass[O, F]) error
	// Decide chooses the next step.
	Decide func(*Pass[O, F], time.Time) repair.Verdict
	// Steps are the kind's own. The next decision follows each.
	Steps map[repair.Step]func(context.Context, *Pass[O, F], repair.Verdict) error
	// PausedSteps are the steps that the emergency stop holds.
	PausedSteps []repair.Step
	// Begin notes the start of an object, and reports whether it was the first time.
	Begin func(O, *corev1.Node, time.Time) (first bool)
	// Waiting notes what an object waits for, and reports whether that is news.
	Waiting func(O, *corev1.Node, repair.Verdict, time.Time) bool
	// Changed compares what others may change of an object besides its metadata.
	Changed func(before, after O) bool
	// NodeFacts are those of a Node that decisions depend on.
	NodeFacts func(*corev1.Node) any
	// Watch adds what else enqueues an object, by its Node's name; nil adds nothing.
	Watch func(*builder.Builder, func(nodeOf func(client.Object) string) handler.EventHandler)
	// Besides are the other kinds that Watch watches.
	Besides []client.Object
}

// Frame is the part of a controller that all kinds share: it reads object and Node, has
// the kind decide, does that one thing, and goes on until it has to wait for the world.
//
// Every write is guarded by what was read in the same pass: the Node's by the facts
// that kube.PatchNode tests, the object's by the resourceVersion of its update.
type Frame[O client.Object, F any] struct {
	Deps
	Traits[O, F]
	// Here marks the places where a test may end the process.
	Here func(point string)
}

// NewFrame makes the frame of one kind.
func NewFrame[O client.Object, F any](d Deps, t Traits[O, F]) Frame[O, F] {
	return Frame[O, F]{Deps: d, Traits: t, Here: crashpoint.Here}
}

// Pass is what is known of one object at one moment.
type Pass[O client.Object, F any] struct {
	Object O
	Node   *corev1.Node // nil is certain absence
	// Facts are the kind's own.
	Facts F
	Log   *slog.Logger
}

// Reconcile takes an object as far as it gets now.
func (f *Frame[O, F]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	again, err := f.handle(ctx, req.Name)
	if errors.Is(err, kube.ErrConflict) {
		f.Log.Debug("write conflict detected, reading again", "object", req.Name, "error", err)
		return ctrl.Result{RequeueAfter: raceWait}, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// handle observes, decides and acts until it has to wait.
func (f *Frame[O, F]) handle(ctx context.Context, name string) (time.Duration, error) {
	var p *Pass[O, F]
	for range f.MaxSteps {
		if p == nil || f.Fresh {
			var err error
			if p, err = f.observe(ctx, name); err != nil || p == nil {
				return 0, err
			}
			f.Here("janitor/observed")
		}
		v := f.Decide(p, f.Clock.Now())
		f.Here("janitor/decided")
		again, goOn, err := f.act(ctx, p, v)
		if err != nil {
			return 0, fmt.Errorf("%s of %s: %w", v.Step, name, err)
		}
		if !goOn {
			return again, nil
		}
	}
	return 0, fmt.Errorf("object %s does not reach a stable state, retrying", name)
}

// observe reads what a decision depends on; nil when there is no object.
func (f *Frame[O, F]) observe(ctx context.Context, name string) (*Pass[O, F], error) {
	p := &Pass[O, F]{Object: f.Object()}
	if err := f.Objects.Get(ctx, client.ObjectKey{Name: name}, p.Object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	node := f.NodeOf(p.Object)
	p.Log = f.Log.With("kind", f.Name, "object", name, "node", node)
	if node != "" {
		var err error
		if p.Node, err = kube.ReadNode(ctx, f.Nodes, node); err != nil && !errors.Is(err, kube.ErrNodeDeleted) {
			return nil, err
		}
	}
	if f.Read == nil {
		return p, nil
	}
	return p, f.Read(ctx, p)
}

// NodeOfPass is the Node for a decision, with what the configuration excludes.
func (f *Frame[O, F]) NodeOfPass(p *Pass[O, F]) repair.Node {
	n := NodeFacts(p.Node)
	if p.Node != nil {
		n.Excluded = n.Excluded || slices.ContainsFunc(f.Excluded, func(s labels.Selector) bool {
			return s.Matches(labels.Set(p.Node.Labels))
		})
	}
	return n
}

// act carries out one step; goOn asks for the next decision.
func (f *Frame[O, F]) act(ctx context.Context, p *Pass[O, F], v repair.Verdict) (again time.Duration, goOn bool, err error) {
	if why, on := f.Pause.On(); on && slices.Contains(f.PausedSteps, v.Step) {
		p.Log.Info("maintenance postponed", "why", why)
		return f.Pause.Wait(), false, nil
	}
	if do, own := f.Steps[v.Step]; own {
		return 0, true, do(ctx, p, v)
	}
	switch v.Step { //nolint:exhaustive // the others are the kinds' own
	case repair.Begin:
		return 0, true, f.begin(ctx, p)
	case repair.Claim:
		return 0, true, f.claim(ctx, p)
	case repair.Wait:
		return v.Again, false, f.wait(ctx, p, v)
	case repair.Unclaim:
		return 0, true, f.unclaim(ctx, p, v)
	case repair.Expire:
		return 0, false, f.expire(ctx, p)
	}
	return 0, false, nil
}

// Write stores the object's status under the resourceVersion it was read with.
func (f *Frame[O, F]) Write(ctx context.Context, p *Pass[O, F]) error {
	return lostRace(f.Objects.Status().Update(ctx, p.Object), "writing the status")
}

// lostRace is the error of a write: kube.ErrConflict if the object is not the one that
// was read any more, or is gone.
func lostRace(err error, doing string) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		err = kube.ErrConflict
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
