// Package reconciler reconciles NodeHealthChecks: it reads the check, its nodes, their
// remediations and leases, calls package triage, executes the decisions and records the
// results.
//
// One pass at a time observes and decides, and what it is going to begin the next one
// sees; its requests are made while others decide, and never beside those of another
// pass of its check.
// Nothing that must not happen twice is remembered by the process alone: a
// remediation's name follows from node and template, and the status is made again from
// what is there.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

const (
	// callLimit bounds one request; an API server that does not answer holds a pass
	// up no longer.
	callLimit = 30 * time.Second
	// raceWait is how long a lost race waits before it looks again.
	raceWait = 50 * time.Millisecond
	// passes is how many checks are worked on at once.
	passes = 16
	// shownErrors are those of one pass that are reported in full.
	shownErrors = 5
)

// Deps are what the controller works with.
type Deps struct {
	// Live reads and writes at the API server, without a cache.
	Live client.Client
	// Claims are the leases of nodes.
	Claims nodelease.Claims
	// Pause is the emergency stop; nil is never on.
	Pause *pause.Switch
	// Workers is how many acts of a pass are carried out at once.
	Workers int
	// DryRun begins and removes nothing.
	DryRun bool
	// Beside adds what else runs on the controller's caches; nil is nothing.
	Beside  func(ctrl.Manager) error
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
}

// identity of an object.
type identity struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// Reconciler reconciles NodeHealthChecks, several at a time.
type Reconciler struct {
	Deps
	cached client.Reader
	kinds  *kinds
	events events.EventRecorder
	// slots bound the acts of all passes.
	slots chan struct{}

	// mu is held while a pass observes and decides, and over what follows.
	mu sync.Mutex
	// begun are control-plane nodes for which a pass makes a remediation just now.
	begun map[string]bool
	// reportedKeys are the keys of the notices of each check's last pass.
	reportedKeys map[string]map[string]bool
	// made are remediations that the cache may not show yet.
	made map[identity]triage.Remediation
	// here marks the places where a test may end the process.
	here func(point string)
}

func newController(d Deps, cached client.Reader, k *kinds, e events.EventRecorder) *Reconciler {
	return &Reconciler{
		Deps: d, cached: cached, kinds: k, events: e, here: crashpoint.Here,
		reportedKeys: map[string]map[string]bool{}, made: map[identity]triage.Remediation{},
		begun: map[string]bool{}, slots: make(chan struct{}, max(1, d.Workers)),
	}
}

// Reconcile makes one pass over a check.
func (c *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	raw := rawCheck()
	err := c.Live.Get(ctx, req.NamespacedName, raw)
	if apierrors.IsNotFound(err) || err == nil && raw.GetDeletionTimestamp() != nil {
		c.forget(req.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the check: %w", err)
	}
	check, problem := decode(raw)
	if problem != nil {
		return c.reportUndecodable(ctx, raw, problem)
	}
	o, plan, err := c.decide(ctx, check)
	if err != nil {
		return ctrl.Result{}, errors.Join(err, c.undecided(ctx, check, err))
	}
	outcomes := c.carryOut(ctx, o, plan)
	c.here("node-health-check/acted")
	status := c.close(o, plan, outcomes)
	again := plan.Again
	switch err := c.store(ctx, check, status); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		again = raceWait
	case err != nil:
		return ctrl.Result{}, errors.Join(fmt.Errorf("writing the status: %w", err), failures(outcomes))
	}
	return ctrl.Result{RequeueAfter: again}, failures(outcomes)
}

// store writes the status, if it is worth it.
func (c *Reconciler) store(ctx context.Context, check *v1alpha1.NodeHealthCheck, status v1alpha1.NodeHealthCheckStatus) error {
	if !triage.Changed(check.Status, status) {
		return nil
	}
	check.Status = status
	return c.Live.Status().Update(ctx, check) //nolint:wrapcheck // the caller says what it means
}

// undecided reports that a pass failed before it decided anything.
func (c *Reconciler) undecided(ctx context.Context, check *v1alpha1.NodeHealthCheck, why error) error {
	if errors.Is(why, context.Canceled) {
		return nil // the process ends, or its leadership
	}
	status, notices := triage.Undecided(check.Status, why, c.Clock.Now())
	c.mu.Lock()
	c.emitEvents(check, notices)
	c.mu.Unlock()
	if err := c.store(ctx, check, status); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// decide observes and decides, and notes which control-plane nodes are taken: no other
// pass begins one beside them.
func (c *Reconciler) decide(ctx context.Context, check *v1alpha1.NodeHealthCheck) (*observation, triage.Plan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := c.observe(ctx, check)
	if err != nil {
		return nil, triage.Plan{}, err
	}
	plan := triage.Examine(o.View, c.Clock.Now())
	for _, a := range plan.Acts {
		if a.Do == triage.Begin && triage.IsControlPlane(a.Of) {
			c.begun[a.Node] = true
		}
	}
	return o, plan, nil
}

// close makes the status of a pass whose acts are done, and reports them.
func (c *Reconciler) close(o *observation, plan triage.Plan, outcomes []triage.Outcome) v1alpha1.NodeHealthCheckStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range plan.Acts {
		if a.Do == triage.Begin {
			delete(c.begun, a.Node) // what was made is in made
		}
	}
	status, notices := plan.Close(o.View, outcomes, c.Clock.Now())
	c.emitEvents(o.Check, notices)
	c.Metrics.count(o.Check.Name, status, plan, c.Clock.Now())
	return status
}

// forget a check that is gone.
func (c *Reconciler) forget(check string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reportedKeys, check)
	c.Metrics.forget(check)
}

// failures joins what could not be done; the next pass decides about it again.
func failures(outcomes []triage.Outcome) error {
	var all []error
	for _, o := range outcomes {
		if o.Err != nil {
			all = append(all, fmt.Errorf("%s for node %s: %w", o.Act.Do, o.Act.Node, o.Err))
		}
	}
	if len(all) > shownErrors {
		return fmt.Errorf("retrying %d of %d actions that failed: %w", len(all), len(outcomes), errors.Join(all[:shownErrors]...))
	}
	return errors.Join(all...)
}

// emitEvents records notices as Events; one with a key only if the last pass had it not.
func (c *Reconciler) emitEvents(check client.Object, notices []triage.Notice) {
	before, now := c.reportedKeys[check.GetName()], map[string]bool{}
	for _, n := range notices {
		if n.Key != "" {
			now[n.Key] = true
			if before[n.Key] {
				continue
			}
		}
		kind := "Normal"
		if n.Warning {
			kind = "Warning"
		}
		c.events.Eventf(check, nil, kind, n.Reason, "Remediation", "[remediation] %s", n.Message)
		c.Log.Info(n.Message, "check", check.GetName(), "reason", n.Reason)
	}
	c.reportedKeys[check.GetName()] = now
}

// keyOf identifies a remediation.
func keyOf(r triage.Remediation) identity { return identity{r.Kind, r.Namespace, r.Name} }

// objectKey is its key for a client.
func (i identity) objectKey() types.NamespacedName {
	return types.NamespacedName{Namespace: i.namespace, Name: i.name}
}
