package reconciler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/repair-chain/internal/work"
)

// updateFinalizer puts the finalizer on a run before anything is made for it, or takes it off.
func (c *Reconciler) updateFinalizer(ctx context.Context, run *v1alpha1.RepairRun, on bool) error {
	if controllerutil.ContainsFinalizer(run, v1alpha1.ObjectsFinalizer) == on {
		return nil
	}
	before := run.DeepCopy()
	if on {
		controllerutil.AddFinalizer(run, v1alpha1.ObjectsFinalizer)
	} else {
		controllerutil.RemoveFinalizer(run, v1alpha1.ObjectsFinalizer)
	}
	err := c.Live.Patch(ctx, run, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing the finalizer of run %s: %w", run.Name, err)
	}
	c.here("repair-chain/held")
	return nil
}

// remove ends a run that was deleted before its end: nothing begins any more, and the
// run goes when the objects of its steps are gone.
func (c *Reconciler) remove(ctx context.Context, run *v1alpha1.RepairRun) (ctrl.Result, error) {
	gone, err := work.Worker{Resources: c.resources(ctx)}.Remove(ctx, run)
	switch {
	case err != nil:
		return again(err)
	case !gone:
		return ctrl.Result{RequeueAfter: pollInterval}, nil
	}
	if err := c.unclaim(ctx, run); err != nil {
		return again(err)
	}
	c.Log.Info("run deleted before its completion, objects of its steps removed", "run", run.Name, "node", v1alpha1.NodeOf(run))
	return again(client.IgnoreNotFound(c.updateFinalizer(ctx, run, false)))
}

// finalize releases a run that has ended, and removes it and its objects after its time;
// one that a NodeHealthCheck owns is removed by that.
func (c *Reconciler) finalize(ctx context.Context, run *v1alpha1.RepairRun) (ctrl.Result, error) {
	if controllerutil.ContainsFinalizer(run, v1alpha1.ObjectsFinalizer) { // this is the end, and not a later look
		if err := c.unclaim(ctx, run); err != nil {
			return again(err)
		}
	}
	if err := c.updateFinalizer(ctx, run, false); err != nil {
		return again(client.IgnoreNotFound(err))
	}
	if c.Keep <= 0 || run.DeletionTimestamp != nil || v1alpha1.OwnedByNodeHealthCheck(run) {
		return ctrl.Result{}, nil
	}
	ended := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
	if left := ended.LastTransitionTime.Add(c.Keep).Sub(c.Clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	err := c.Live.Delete(ctx, run, client.Preconditions{UID: &run.UID})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
