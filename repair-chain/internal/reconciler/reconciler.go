// Package reconciler is the controller of RepairRuns: it accepts them, finds what they depend
// on, has package work take them on, and writes down what came of it.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
	"github.com/nvidia/nvsentinel/repair-chain/internal/work"
)

const (
	// passLimit bounds the requests of one pass.
	passLimit = time.Minute
	// raceWait is how long a lost race waits before it looks again.
	raceWait = 50 * time.Millisecond
	// pollInterval is when a run that is under way is looked at although nothing enqueued it: a
	// step's time may be up.
	pollInterval = 15 * time.Second
)

// Deps are what the controller works with.
type Deps struct {
	// Live reads and writes at the API server, without a cache; Objects are those of
	// the steps.
	Live    client.Client
	Objects dynamic.Interface
	// Pause is the emergency stop; nil is never on.
	Pause *pause.Switch
	// Leases are those of nodes, by which remediators keep off each other's; nil takes none.
	Leases *nodelease.Claims
	// Keep is how long a run that has ended is kept; 0 is for ever.
	Keep    time.Duration
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
}

// Reconciler reconciles RepairRuns, RepairChains and RepairTemplates.
type Reconciler struct {
	Deps
	kinds  *kinds
	events events.EventRecorder
	// taken is when the lease of a node was taken last, by run and node.
	taken sync.Map
	// here marks the places where a test may end the process.
	here func(point string)
}

// Reconcile takes one run as far as it goes.
func (c *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	ctx, release := lease.FenceCall(ctx) // one that led before acts no more
	defer release()
	run := &v1alpha1.RepairRun{}
	if err := c.Live.Get(ctx, req.NamespacedName, run); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case chain.Ended(run):
		return c.finalize(ctx, run)
	case run.DeletionTimestamp != nil:
		return c.remove(ctx, run)
	}
	if err := c.updateFinalizer(ctx, run, true); err != nil {
		return again(err)
	}
	before := run.DeepCopy()
	kept := before
	save := func(ctx context.Context, run *v1alpha1.RepairRun) error {
		err := c.save(ctx, run)
		if err == nil {
			kept = run.DeepCopy()
		}
		return err
	}
	err := c.pass(ctx, run, save)
	if !apierrors.IsConflict(err) && !reflect.DeepEqual(kept.Status, run.Status) {
		if problem := save(ctx, run); problem != nil {
			err = errors.Join(err, problem)
		}
	}
	c.emitEvents(before, kept)
	switch {
	case err != nil:
		return again(err)
	case chain.Ended(run):
		return c.finalize(ctx, run)
	}
	return ctrl.Result{RequeueAfter: pollInterval}, nil
}

// again is what follows a pass that failed; a lost race is none.
func again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: raceWait}, nil
	}
	return ctrl.Result{}, err
}

// pass accepts a run that is new, and takes it on.
func (c *Reconciler) pass(ctx context.Context, run *v1alpha1.RepairRun, save work.Save) error {
	now := c.Clock.Now().UTC().Truncate(time.Second) // as the API server keeps it
	node := v1alpha1.NodeOf(run)
	if node == "" {
		chain.Unnamed(run, now)
		return nil
	}
	facts := chain.Facts{Now: now}
	found, err := c.readNode(ctx, node, &facts)
	if err != nil {
		c.Log.Warn("node of the run not read, no step started", "run", run.Name, "node", node, "error", err)
		facts.Unread = true
	}
	if !facts.Unread && found == nil && chain.Untouched(run) {
		chain.NoNode(run, now)
		return nil
	}
	if run.Status.Chain == nil {
		problem, err := c.accept(ctx, run)
		if err != nil {
			return err
		}
		if problem != "" {
			chain.Reject(run, problem, now)
			return nil
		}
	}
	compiled, err := chain.Compile(*run.Status.Chain)
	if err != nil { // it was accepted: an earlier version knew more
		chain.Reject(run, err.Error(), now)
		return nil
	}
	if facts.Templates, facts.Problems, err = c.templates(ctx, compiled, chain.CompileTemplate); err != nil {
		return err
	}
	facts.Lease = c.claim(ctx, run, found)
	if why, on := c.Pause.On(); on {
		facts.Pause = why
	}
	return work.Worker{Resources: c.resources(ctx), Save: save}.Pass(ctx, run, compiled, facts)
}

// accept begins a run with its chain as it is now; problem is why it can not be used.
func (c *Reconciler) accept(ctx context.Context, run *v1alpha1.RepairRun) (problem string, err error) {
	definition := &v1alpha1.RepairChain{}
	switch err := c.Live.Get(ctx, types.NamespacedName{Name: run.Spec.Chain}, definition); {
	case apierrors.IsNotFound(err):
		return "RepairChain " + run.Spec.Chain + " does not exist", nil
	case err != nil:
		return "", fmt.Errorf("reading RepairChain %s: %w", run.Spec.Chain, err)
	}
	wrong, err := c.validate(ctx, definition.Spec)
	switch {
	case err != nil:
		return "", err
	case wrong != nil:
		return "RepairChain " + run.Spec.Chain + ": " + wrong.Error(), nil //nolint:nilerr // it is the answer
	}
	run.Status = chain.Begin(v1alpha1.NodeOf(run), definition.Spec)
	return "", nil
}

// validate returns as wrong the errors in a chain or in a template that it names; err means
// that the templates could not be read.
func (c *Reconciler) validate(ctx context.Context, spec v1alpha1.RepairChainSpec) (wrong, err error) {
	compiled, wrong := chain.Compile(spec)
	if wrong != nil {
		return wrong, nil
	}
	templates, problems, err := c.templates(ctx, compiled, usableTemplate)
	if err != nil {
		return nil, err
	}
	for i, s := range spec.Steps {
		if text := problems[s.Template]; text != "" {
			return fmt.Errorf("spec.steps[%d].template: RepairTemplate %s: %s", i, s.Template, text), nil
		}
	}
	return compiled.Check(templates), nil
}

// usableTemplate is usable for those who need no warnings.
func usableTemplate(t *v1alpha1.RepairTemplate) (*chain.Template, error) {
	compiled, _, err := usable(t)
	return compiled, err
}

// templates of a chain, and what is wrong with those that can not be used. A run that is
// under way goes on with what compiles; one that is to begin needs what is usable.
func (c *Reconciler) templates(ctx context.Context, compiled *chain.Chain, compile func(*v1alpha1.RepairTemplate) (*chain.Template, error)) (map[string]*chain.Template, map[string]string, error) {
	templates, problems := map[string]*chain.Template{}, map[string]string{}
	for _, s := range compiled.Steps {
		if templates[s.Template] != nil || problems[s.Template] != "" {
			continue
		}
		t := &v1alpha1.RepairTemplate{}
		err := c.Live.Get(ctx, types.NamespacedName{Name: s.Template}, t)
		if apierrors.IsNotFound(err) {
			problems[s.Template] = "does not exist"
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading RepairTemplate %s: %w", s.Template, err)
		}
		one, err := compile(t)
		if err != nil {
			problems[s.Template] = err.Error()
			continue
		}
		templates[s.Template] = one
	}
	return templates, problems, nil
}

// readNode reads what a node bears; one that is gone is nil, and bears nothing.
func (c *Reconciler) readNode(ctx context.Context, name string, facts *chain.Facts) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := c.Live.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	m := nodemark.Read(node)
	facts.Session, facts.Excluded = m.Session, m.OptedOut
	return node, nil
}

// resources finds where objects of a kind are, and has the kind watched.
func (c *Reconciler) resources(ctx context.Context) work.Resources {
	return func(kind schema.GroupVersionKind, namespace string) (work.Resource, error) {
		mapping, err := c.Live.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, fmt.Errorf("discovering the resource of %s: %w", kind, err)
		}
		if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != (namespace != "") {
			return nil, fmt.Errorf("namespace of the template is %q, and objects of %s are namespaced: %v", namespace, kind, namespaced)
		}
		if err := c.kinds.follow(ctx, scope{kind, namespace}); err != nil {
			c.Log.Warn("objects of a kind not watched, polling them", "kind", kind, "namespace", namespace, "error", err)
		}
		all := c.Objects.Resource(mapping.Resource)
		if namespace == "" {
			return marked{all, c.here}, nil
		}
		return marked{all.Namespace(namespace), c.here}, nil
	}
}

// save keeps the status of a run.
func (c *Reconciler) save(ctx context.Context, run *v1alpha1.RepairRun) error {
	if err := c.Live.Status().Update(ctx, run); err != nil {
		return fmt.Errorf("storing the status of run %s: %w", run.Name, err)
	}
	c.here("repair-chain/kept")
	return nil
}

// emitEvents records as Events which steps have come further, and which outputs have changed.
func (c *Reconciler) emitEvents(before, run *v1alpha1.RepairRun) {
	was, read := map[string]v1alpha1.StepState{}, map[string]string{}
	for _, s := range before.Status.Steps {
		was[s.Name] = s.State
		for _, o := range s.Outputs {
			read[s.Name+"."+o.Name] = o.Digest
		}
	}
	for _, s := range run.Status.Steps {
		for _, o := range s.Outputs {
			if name := s.Name + "." + o.Name; read[name] != o.Digest {
				c.events.Eventf(run, nil, corev1.EventTypeNormal, outputReason, "Repair", "Output %s has the digest %s, its inputs have the digest %s", name, o.Digest, o.InputDigest)
			}
		}
		if s.State == was[s.Name] || s.State == v1alpha1.StepWaiting {
			continue
		}
		kind := corev1.EventTypeNormal
		if s.State == v1alpha1.StepFailed {
			kind = corev1.EventTypeWarning
		}
		c.events.Eventf(run, nil, kind, "Step"+string(s.State), "Repair", "Step %s: %s %s", s.Name, s.Reason, s.Message)
		c.Log.Info("step changed", "run", run.Name, "node", v1alpha1.NodeOf(run), "step", s.Name, "state", s.State, "reason", s.Reason, "message", s.Message)
		c.Metrics.step(run, s)
	}
	if chain.Ended(run) {
		end := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
		c.Log.Info("run ended", "run", run.Name, "node", v1alpha1.NodeOf(run), "succeeded", end.Status, "reason", end.Reason, "message", end.Message)
		c.Metrics.ended(run, end.Reason)
		if slices.Contains(forPeople, end.Reason) {
			c.events.Eventf(run, nil, corev1.EventTypeWarning, end.Reason, "Repair", "%s", end.Message)
		}
	}
}

// forPeople are the reasons of ended runs that no other Event explains, and that a person
// has to do something about.
var forPeople = []string{
	v1alpha1.ReasonMisconfigured, v1alpha1.ReasonOutcomeUnknown, v1alpha1.ReasonRejected, v1alpha1.ReasonNotRepaired, v1alpha1.ReasonNodeNotFound, v1alpha1.ReasonNodeUnnamed,
}
