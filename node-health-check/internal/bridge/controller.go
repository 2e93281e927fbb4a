// Package bridge is the remediator of HealthEventRemediations: it reports their nodes
// through the connector of its own node, as every publisher does, and mirrors what the
// quarantine makes of them.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/node-health-check/bridge"
)

const (
	// callLimit bounds the requests of one step.
	callLimit = 30 * time.Second
	// raceWait is how long a lost race waits before it looks again.
	raceWait = 50 * time.Millisecond
	// steps of one look at an object: guard, then report and mirror.
	steps = 2
)

// Deps are what the controller works with.
type Deps struct {
	// Live reads and writes at the API server, without a cache.
	Live client.Client
	// Connector takes the events; what it acknowledges to a cluster-wide publisher is in the
	// store.
	Connector protos.PlatformConnectorClient
	// DryRun reports no fault; what was reported before is still ended and mirrored.
	DryRun  bool
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
}

// Reconciler takes HealthEventRemediations a step on.
type Reconciler struct {
	Deps
	cached client.Reader
	// here marks the places where a test may end the process.
	here func(point string)

	mu      sync.Mutex
	failing error
}

// New makes a controller.
func New(d Deps) *Reconciler { return &Reconciler{Deps: d, here: crashpoint.Here} }

// Ready reports whether the connector took the last event, and if not, why.
func (c *Reconciler) Ready() (bool, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing != nil {
		return false, c.failing.Error()
	}
	return true, ""
}

// Reconcile takes one object as far as it goes.
func (c *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ctx, release := lease.FenceCall(ctx) // one that led before acts no more
	defer release()
	o := &v1alpha1.HealthEventRemediation{}
	if err := c.Live.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	for range steps {
		more, err := c.step(ctx, o)
		switch {
		case apierrors.IsConflict(err):
			return ctrl.Result{RequeueAfter: raceWait}, nil
		case apierrors.IsNotFound(err):
			return ctrl.Result{}, nil
		case err != nil || !more:
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: raceWait}, nil
}

// step does what is decided; more is true if another decision has to follow.
func (c *Reconciler) step(ctx context.Context, o *v1alpha1.HealthEventRemediation) (more bool, err error) {
	node, err := c.node(ctx, bridge.NodeOf(o))
	if err != nil {
		return false, err
	}
	d := bridge.Decide(o, node)
	if c.DryRun && (d.Do == bridge.Guard || d.Do == bridge.Report) {
		return false, nil
	}
	switch d.Do {
	case bridge.Guard:
		o.Finalizers = append(o.Finalizers, v1alpha1.Finalizer)
		if err := c.Live.Update(ctx, o); err != nil {
			return false, fmt.Errorf("adding the finalizer to HealthEventRemediation %s: %w", o.Name, err)
		}
		c.here("node-health-check/guarded")
		return true, nil
	case bridge.Report:
		return false, c.report(ctx, o, node, d)
	case bridge.Recover:
		return false, c.recover(ctx, o)
	case bridge.WriteConditions:
	}
	return false, c.write(ctx, o, d)
}

// node as the cache knows it; what it does not know the API server is asked for.
func (c *Reconciler) node(ctx context.Context, name string) (*corev1.Node, error) {
	if name == "" {
		return nil, nil
	}
	n := &corev1.Node{}
	err := c.cached.Get(ctx, types.NamespacedName{Name: name}, n)
	if apierrors.IsNotFound(err) {
		err = c.Live.Get(ctx, types.NamespacedName{Name: name}, n)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return n, nil
}

// report publishes the fault, and writes its id and the conditions.
func (c *Reconciler) report(ctx context.Context, o *v1alpha1.HealthEventRemediation, node *corev1.Node, d bridge.Decision) error {
	fault := bridge.Fault(o)
	err := c.publish(ctx, fault)
	var refused *report.Refused
	switch {
	case errors.As(err, &refused):
		return c.write(ctx, o, bridge.Refusal(status.Convert(refused.Cause).Message()))
	case err != nil:
		return errors.Join(err, c.write(ctx, o, d))
	}
	c.here("node-health-check/reported")
	c.Log.Info("health event of the node reported", "node", fault.GetNodeName(), "remediation", o.Name, "event", fault.GetId(), "strategy", fault.GetProcessingStrategy())
	o.Status.EventID = fault.GetId()
	return c.write(ctx, o, bridge.Decide(o, node))
}

// recover reports the fault as over, then lets the object go. A recovery that is
// refused for good is tried again as long as its fault is stored.
func (c *Reconciler) recover(ctx context.Context, o *v1alpha1.HealthEventRemediation) error {
	err := c.publish(ctx, bridge.Recovery(o))
	var refused *report.Refused
	if errors.As(err, &refused) && o.Status.EventID == "" {
		c.Log.Warn("recovery refused like its fault, object released without it", "remediation", o.Name, "error", err)
		err = nil
	}
	if err != nil {
		return err
	}
	c.here("node-health-check/recovered")
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == v1alpha1.Finalizer })
	if err := c.Live.Update(ctx, o); err != nil {
		return fmt.Errorf("removing the finalizer from HealthEventRemediation %s: %w", o.Name, err)
	}
	return nil
}

// write writes the conditions if they are others now.
func (c *Reconciler) write(ctx context.Context, o *v1alpha1.HealthEventRemediation, d bridge.Decision) error {
	if !d.Write(o, metav1.NewTime(c.Clock.Now())) {
		return nil
	}
	if err := c.Live.Status().Update(ctx, o); err != nil {
		return fmt.Errorf("writing the conditions of HealthEventRemediation %s: %w", o.Name, err)
	}
	c.here("node-health-check/mirrored")
	return nil
}

// publish hands an event to the connector and waits for its word.
func (c *Reconciler) publish(ctx context.Context, e *protos.HealthEvent) error {
	ctx, cancel := context.WithTimeout(ctx, report.Deadline)
	defer cancel()
	err := report.Sender{Connector: c.Connector}.One(ctx, e)
	c.Metrics.count(e, err)
	if err != nil {
		err = fmt.Errorf("sending an event of node %s to the connector, with a retry: %w", e.GetNodeName(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused *report.Refused
	if c.failing = err; errors.As(err, &refused) {
		c.failing = nil // this event is wrong, not the connector
	}
	return err
}
