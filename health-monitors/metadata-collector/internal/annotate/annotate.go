// Package annotate keeps the annotation of the node's pods that says which GPUs
// they hold.
package annotate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/internal/rounds"
	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/allotment"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Annotator compares what the kubelet says with the pods. Its fields are set
// before Rounds.
type Annotator struct {
	Node    string
	Kubelet *Kubelet
	Pods    metadata.Interface
	// Interval is the time between two questions to the kubelet, Refresh the most
	// between two lists of the pods: a pod that came back under its name with the
	// same GPUs is annotated that late.
	Interval, Refresh time.Duration
	Clock             clock.WithTicker
	Log               *slog.Logger
	Metrics           *Metrics

	held   allotment.Held
	listed time.Time
}

// Rounds are the looks of the annotator.
func (a *Annotator) Rounds() *rounds.Rounds {
	return &rounds.Rounds{
		Look: a.Look, Interval: a.Interval, Clock: a.Clock, Log: a.Log, NotYet: "the kubelet has not been asked yet",
		Fails: "pods could not be annotated with their GPUs; it is tried again", Works: "pods are annotated again",
		Failed: func(bool) { a.Metrics.Failures.Inc() },
	}
}

// Look asks the kubelet, and if that says something else than before, or Refresh
// has passed, compares it with the pods and writes what differs.
func (a *Annotator) Look(ctx context.Context) error {
	held, err := a.Kubelet.Held(ctx)
	if err != nil {
		return err
	}
	now := a.Clock.Now()
	if a.held != nil && reflect.DeepEqual(held, a.held) && now.Sub(a.listed) < a.Refresh {
		return nil
	}
	pods, err := a.pods(ctx)
	if err != nil {
		return err
	}
	changes, all := allotment.Changes(held, pods)
	var problems []error
	for _, c := range changes {
		problems = append(problems, a.write(ctx, c))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if a.held, a.listed = held, now; !all {
		a.held = nil // listed again at the next look
	}
	return nil
}

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// pods are those of the node, from the API server's cache.
func (a *Annotator) pods(ctx context.Context) ([]allotment.Marked, error) {
	list, err := a.Pods.Resource(podResource).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", a.Node).String(), ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("listing the node's pods: %w", err)
	}
	out := make([]allotment.Marked, 0, len(list.Items))
	for _, p := range list.Items {
		out = append(out, allotment.Marked{
			Pod: allotment.Pod{Namespace: p.Namespace, Name: p.Name}, UID: string(p.UID), Annotation: p.Annotations[nodemark.DevicesAnnotation],
		})
	}
	return out, nil
}

// write changes the annotation of the pod that was seen, and of no other of its
// name; one that is gone needs none.
func (a *Annotator) write(ctx context.Context, c allotment.Change) error {
	var value any
	if c.Annotation != "" {
		value = c.Annotation
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": c.UID, "annotations": map[string]any{nodemark.DevicesAnnotation: value},
	}})
	if err != nil {
		return fmt.Errorf("encoding the annotation of pod %s/%s: %w", c.Namespace, c.Name, err)
	}
	_, err = a.Pods.Resource(podResource).Namespace(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("annotating pod %s/%s: %w", c.Namespace, c.Name, err)
	}
	a.Metrics.Annotated.Inc()
	a.Log.Info("pod was annotated with its GPUs", "namespace", c.Namespace, "pod", c.Name, "devices", c.Annotation)
	return nil
}
