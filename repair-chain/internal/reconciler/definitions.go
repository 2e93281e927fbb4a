package reconciler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/repair-chain/api/v1alpha1"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// Reasons of the condition Accepted.
const (
	reasonAccepted = "Accepted"
	reasonWrong    = "Wrong"
)

// templateController tells templates whether they can be used.
type templateController struct{ *Reconciler }

func (c templateController) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	t := &v1alpha1.RepairTemplate{}
	if err := c.Live.Get(ctx, req.NamespacedName, t); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	problem := ""
	if _, err := chain.CompileTemplate(t); err != nil {
		problem = err.Error()
	}
	if !accepted(&t.Status.Conditions, t.Generation, problem) {
		return ctrl.Result{}, nil
	}
	if err := c.Live.Status().Update(ctx, t); err != nil {
		return ctrl.Result{}, fmt.Errorf("telling RepairTemplate %s what it is: %w", t.Name, err)
	}
	return ctrl.Result{}, nil
}

// chainController tells chains whether they can be used.
type chainController struct{ *Reconciler }

func (c chainController) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	definition := &v1alpha1.RepairChain{}
	if err := c.Live.Get(ctx, req.NamespacedName, definition); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	problem, err := c.wrong(ctx, definition.Spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !accepted(&definition.Status.Conditions, definition.Generation, problem) {
		return ctrl.Result{}, nil
	}
	if err := c.Live.Status().Update(ctx, definition); err != nil {
		return ctrl.Result{}, fmt.Errorf("telling RepairChain %s what it is: %w", definition.Name, err)
	}
	return ctrl.Result{}, nil
}

// accepted writes the condition, and says whether it has changed.
func accepted(conditions *[]metav1.Condition, generation int64, problem string) bool {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted, ObservedGeneration: generation}
	if problem != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonWrong, problem
	}
	return meta.SetStatusCondition(conditions, c)
}
