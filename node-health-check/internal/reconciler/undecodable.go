package reconciler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// undecodableRetry is how soon a check that can not be decoded is read again: a change of its
// status alone makes no pass.
const undecodableRetry = time.Minute

// reportUndecodable reports a check that can not be decoded: on the check itself, by an Event, a
// metric and its status, and in the log. Nothing is done for its nodes, and the other
// checks do not wait for it.
func (c *Reconciler) reportUndecodable(ctx context.Context, raw *unstructured.Unstructured, problem error) (ctrl.Result, error) {
	message := fmt.Sprintf("%v. No action is taken for the check's nodes until the field is corrected", problem)
	c.mu.Lock()
	c.emitEvents(raw, []triage.Notice{{Key: message, Warning: true, Reason: triage.NoticeDisabled, Message: v1alpha1.ReasonSpecInvalid + ": " + message}})
	c.Metrics.setUndecodable(raw.GetName())
	c.mu.Unlock()
	patch := undecodableStatus(raw, message, c.Clock.Now())
	if patch == nil {
		return ctrl.Result{RequeueAfter: undecodableRetry}, nil
	}
	text, err := json.Marshal(map[string]any{"status": patch})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("encoding the status of an undecodable check: %w", err)
	}
	err = c.Live.Status().Patch(ctx, raw, client.RawPatch(types.MergePatchType, text))
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		// The status cannot show it; the Event and the metric do.
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("writing the status of an undecodable check: %w", err)
	}
	return ctrl.Result{RequeueAfter: undecodableRetry}, nil
}

// undecodableStatus is the change of status that shows that a check cannot be decoded; nil if
// the status shows it already. What else the status holds is left: only the check's own spec
// determines what the records mean.
func undecodableStatus(raw *unstructured.Unstructured, message string, now time.Time) map[string]any {
	reason := "The check is disabled: " + v1alpha1.ReasonSpecInvalid + ": " + message
	status, _ := raw.Object["status"].(map[string]any)
	since := now.UTC().Format(time.RFC3339)
	conditions, _ := status["conditions"].([]any)
	kept := []any{}
	for _, one := range conditions {
		fields, _ := one.(map[string]any)
		if fields["type"] != v1alpha1.ConditionDisabled {
			kept = append(kept, one)
		} else if at, _ := fields["lastTransitionTime"].(string); fields["status"] == string(metav1.ConditionTrue) {
			if _, err := time.Parse(time.RFC3339, at); err == nil {
				since = at
			}
		}
	}
	if status["phase"] == string(v1alpha1.PhaseDisabled) && status["reason"] == reason {
		return nil
	}
	return map[string]any{"phase": v1alpha1.PhaseDisabled, "reason": reason, "conditions": append(kept, map[string]any{
		"type": v1alpha1.ConditionDisabled, "status": metav1.ConditionTrue, "reason": v1alpha1.ReasonSpecInvalid,
		"message": message, "lastTransitionTime": since, "observedGeneration": raw.GetGeneration(),
	})}
}
