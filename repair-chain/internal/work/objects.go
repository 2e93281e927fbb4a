package work

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// Remove deletes the objects of a run's steps, whose own controllers may keep them for a
// while; gone reports whether none is there any more. An object whose creation was not
// recorded is searched for as well: it may have been made right before a crash.
func (w Worker) Remove(ctx context.Context, run *v1alpha1.RepairRun) (gone bool, err error) {
	gone = true
	for _, st := range run.Status.Steps {
		resource, o, err := w.find(ctx, run, st)
		if err != nil {
			return false, err
		}
		if o == nil {
			continue
		}
		gone = false
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		uid, background := o.GetUID(), metav1.DeletePropagationBackground // a Job's pods go with it
		err = resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return false, fmt.Errorf("deleting %s %s of step %s: %w", o.GetKind(), o.GetName(), st.Name, err)
		}
	}
	return gone, nil
}

// giveUp ends a run that its NodeHealthCheck gave up. The object of a step that is under
// way first gets the same annotation: a RebootNode sends no signal then.
func (w Worker) giveUp(ctx context.Context, run *v1alpha1.RepairRun, facts chain.Facts) error {
	at := run.Annotations[v1alpha1.TimedOutAnnotation]
	for _, st := range run.Status.Steps {
		if st.State != v1alpha1.StepRunning {
			continue
		}
		resource, o, err := w.find(ctx, run, st)
		if err != nil {
			return err
		}
		if o == nil || o.GetAnnotations()[v1alpha1.TimedOutAnnotation] == at {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.GetUID(), "annotations": map[string]string{v1alpha1.TimedOutAnnotation: at},
		}})
		if err == nil {
			_, err = resource.Patch(ctx, o.GetName(), artifact.PatchType, patch, metav1.PatchOptions{FieldManager: artifact.FieldManager})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reporting the timeout to %s %s of step %s: %w", o.GetKind(), o.GetName(), st.Name, err)
		}
	}
	chain.GiveUp(run, facts.Now)
	return nil
}

// find looks for the object of a step; nil is certain absence, of one that is the run's.
func (w Worker) find(ctx context.Context, run *v1alpha1.RepairRun, st v1alpha1.StepStatus) (Resource, *unstructured.Unstructured, error) {
	if st.Object == nil {
		return nil, nil, nil
	}
	resource, err := w.Resources(schema.FromAPIVersionAndKind(st.Object.APIVersion, st.Object.Kind), st.Object.Namespace)
	if meta.IsNoMatchError(err) { // with a kind go its objects
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	o, err := resource.Get(ctx, st.Object.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading %s %s of step %s: %w", st.Object.Kind, st.Object.Name, st.Name, err)
	case o.GetAnnotations()[artifact.SlotAnnotation] != chain.SlotID(run, st.Name):
		return nil, nil, nil // somebody else's, whatever its name
	}
	return resource, o, nil
}
