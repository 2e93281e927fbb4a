package watch

import (
	"context"
	"errors"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
)

// evaluationTime bounds one evaluation of one expression; its cost limit ends
// nearly all sooner.
const evaluationTime = time.Second

// work evaluates objects until the queue ends.
func (g *generation) work(ctx context.Context) {
	for {
		i, done := g.queue.Get()
		if done {
			return
		}
		if ctx.Err() == nil {
			g.evaluateAll(ctx, i)
		}
		g.queue.Done(i)
		g.later.feed()
	}
}

// evaluateAll evaluates every policy about an object and plans the next look.
func (g *generation) evaluateAll(ctx context.Context, i item) {
	kind := i.kind.Value()
	if !g.objects.isSynced(kind) {
		return // it is looked at when its cache is filled
	}
	object, err := g.objects.Find(kind, i.namespace, i.name)
	if err != nil {
		g.Metrics.ReconciliationErrors.WithLabelValues(kind.Kind, reasonCache).Inc()
		g.queue.AddRateLimited(i)
		return
	}
	now := g.Clock.Now()
	var flip time.Time
	well := true
	for _, p := range g.objects.set.Of(kind) {
		next, ok := g.evaluate(ctx, p, i, object, now)
		well = well && ok
		if !next.IsZero() && (flip.IsZero() || next.Before(flip)) {
			flip = next
		}
	}
	if !flip.IsZero() {
		g.queue.AddAfter(i, flip.Sub(now))
	}
	if object != nil {
		g.turns.plan(i, now)
	}
	if !well {
		g.queue.AddRateLimited(i)
		return
	}
	g.queue.Forget(i)
}

// evaluateDeleted is what a policy reports about an object that is not there.
func (g *generation) evaluateDeleted(p *policy.Policy, i item, now time.Time) machine.EvaluationResult {
	r := p.Report
	return machine.EvaluationResult{
		Key: machine.Key{Policy: p.Name, Type: typeOf(p.Kind), Object: join(i.namespace, i.name)}, Observation: machine.Gone, At: now,
		Fault:   machine.Fault{ComponentClass: r.ComponentClass, Codes: r.Codes, Strategy: r.StrategyOr(g.Strategy)},
		Wording: machine.Wording{IsFatal: r.IsFatal, Message: r.Message, Action: r.Action, CustomAction: r.CustomAction, Quarantine: r.Quarantine, Drain: r.Drain},
	}
}

// evaluate evaluates one policy on one object (nil: gone) and keeps the result. It
// returns when time alone may change it; ok is false when a new look may help.
func (g *generation) evaluate(ctx context.Context, p *policy.Policy, i item, object map[string]any, now time.Time) (flip time.Time, ok bool) {
	seen := g.evaluateDeleted(p, i, now)
	if object != nil {
		flip = g.see(ctx, p, object, &seen)
	}
	decision, err := g.Checkpoint.Observe(seen)
	if err != nil {
		g.Metrics.ReconciliationErrors.WithLabelValues(p.Kind.Kind, reasonCheckpoint).Inc()
		g.Metrics.refused(p.Name, err)
		g.warn(p.Name, "state", err)
		return flip, false
	}
	if object == nil && (decision.Recover || decision.Reason == machine.OnHold) {
		g.turns.plan(i, now) // if the recovery is rejected, it is sent again
	}
	if decision.Report {
		g.Metrics.Matches.WithLabelValues(p.Name, seen.Fault.Node, p.Kind.Kind).Inc()
	}
	if decision.Report || decision.Recover {
		g.Log.Info("policy result changed", "policy", p.Name, "object", seen.Key.Object, "node", seen.Fault.Node, "reason", decision.Reason)
	}
	return flip, decision.Reason != machine.NodeUnknown
}

// see evaluates the policy on an object that exists.
func (g *generation) see(ctx context.Context, p *policy.Policy, object map[string]any, seen *machine.EvaluationResult) (flip time.Time) {
	namespace, _ := split(seen.Key.Object)
	if p.Namespace != "" && p.Namespace != namespace {
		seen.Observation = machine.Unmatched
		return time.Time{}
	}
	g.Metrics.Evaluations.Inc()
	match, err := p.Match(object, seen.At, bounded(ctx))
	switch {
	case err != nil:
		seen.Observation = machine.Unknown
		g.failed(p.Name, err)
		return time.Time{}
	case !match.Matched:
		seen.Observation = machine.Unmatched
		return match.Flip
	}
	seen.Observation = machine.Matched
	if seen.Fault.Node, err = p.Node(object, seen.At, bounded(ctx)); err != nil {
		g.failed(p.Name, err)
	}
	return match.Flip
}

// bounded evaluates a program for a limited time.
func bounded(ctx context.Context) policy.Runner {
	return func(p cel.Program, variables map[string]any) (ref.Val, error) {
		ctx, cancel := context.WithTimeout(ctx, evaluationTime)
		defer cancel()
		value, _, err := p.ContextEval(ctx, variables)
		return value, err
	}
}

// failed counts an evaluation without an answer and logs the first of a policy.
func (g *generation) failed(name string, err error) {
	failure := policy.CELError
	if e, ok := errors.AsType[*policy.Error](err); ok {
		failure = e.Failure
	}
	g.Metrics.EvaluationErrors.WithLabelValues(name, string(failure)).Inc()
	g.warn(name, string(failure), err)
}

func (g *generation) warn(name, what string, err error) {
	if _, output := g.warned.LoadOrStore([2]string{name, what}, true); !output {
		g.Log.Warn("policy evaluation failed, further failures for this kind are only counted", "policy", name, "error_type", what, "error", err)
	}
}

// typeOf is the entity type of a kind: "v1/Node", "events.k8s.io/v1/Event".
func typeOf(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + "/" + kind.Kind
}

func join(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func split(object string) (namespace, name string) {
	namespace, name, found := strings.Cut(object, "/")
	if !found {
		return "", object
	}
	return namespace, name
}
