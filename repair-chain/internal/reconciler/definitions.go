package reconciler

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// Reasons of the condition Accepted.
const (
	// reasonAccepted: the RepairChain or RepairTemplate can be used. A message that begins with `warning:` names a
	// probable mistake. Action: none, or follow the warning.
	reasonAccepted = "Accepted"
	// reasonInvalid: the RepairChain or RepairTemplate cannot be used, so runs of it do not start. Action: correct each
	// mistake that the message names.
	reasonInvalid = "Invalid"
)

// Reasons of Events.
const (
	// notAcceptedReason: the RepairChain or RepairTemplate cannot be used. Action: correct each mistake that the Event
	// names.
	notAcceptedReason = "NotAccepted"
	// warningsReason: the RepairChain or RepairTemplate can be used and has a probable mistake. Action: check the part that
	// the Event names.
	warningsReason = "AcceptedWithWarnings"
	// outputReason: an output of a step changed, with the digests of the output and of the inputs. Action: none.
	outputReason = "OutputChanged"
)

// templateController reports in the status of templates whether they can be used.
type templateController struct{ *Reconciler }

func (c templateController) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	t := &v1alpha1.RepairTemplate{}
	if err := c.Live.Get(ctx, req.NamespacedName, t); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	_, warnings, err := usable(t)
	if !c.accepted(t, &t.Status.Conditions, err, warnings) {
		return ctrl.Result{}, nil
	}
	if err := c.Live.Status().Update(ctx, t); err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of RepairTemplate %s: %w", t.Name, err)
	}
	return ctrl.Result{}, nil
}

// chainController reports in the status of chains whether they can be used.
type chainController struct{ *Reconciler }

func (c chainController) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	definition := &v1alpha1.RepairChain{}
	if err := c.Live.Get(ctx, req.NamespacedName, definition); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wrong, err := c.validate(ctx, definition.Spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !c.accepted(definition, &definition.Status.Conditions, wrong, nil) {
		return ctrl.Result{}, nil
	}
	if err := c.Live.Status().Update(ctx, definition); err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of RepairChain %s: %w", definition.Name, err)
	}
	return ctrl.Result{}, nil
}

// usable compiles and checks a template.
func usable(t *v1alpha1.RepairTemplate) (compiled *chain.Template, warnings []string, err error) {
	if compiled, err = chain.CompileTemplate(t); err == nil {
		warnings, err = compiled.Check()
	}
	return compiled, warnings, err
}

// maxMessage is how many bytes the message of the condition has at most.
const maxMessage = 8 << 10

// accepted writes the condition, and reports whether it has changed. An Event is sent when
// an object is not accepted any more, or has warnings.
func (c *Reconciler) accepted(o client.Object, conditions *[]metav1.Condition, wrong error, warnings []string) bool {
	made := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted, ObservedGeneration: o.GetGeneration()}
	if len(warnings) > 0 {
		made.Message = "warning: " + strings.Join(warnings, ", ")
	}
	if wrong != nil {
		made.Status, made.Reason, made.Message = metav1.ConditionFalse, reasonInvalid, wrong.Error()
	}
	made.Message = strings.ToValidUTF8(made.Message[:min(len(made.Message), maxMessage)], "")
	if !meta.SetStatusCondition(conditions, made) {
		return false
	}
	if note := made.Message; note != "" {
		c.Log.Warn("invalid or questionable definition found", "object", o.GetName(), "accepted", made.Status, "message", note)
		c.events.Eventf(o, nil, corev1.EventTypeWarning, map[bool]string{true: notAcceptedReason, false: warningsReason}[wrong != nil], "Accept",
			"%s", strings.ToValidUTF8(note[:min(len(note), maxNote)], ""))
	}
	return true
}

// maxNote is how many bytes the API server takes as the note of an Event.
const maxNote = 1 << 10
