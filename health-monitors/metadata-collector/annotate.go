package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/internal/polling"
	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/inventory"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Annotator compares what the kubelet reports with the pods. Its fields are set
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
	Metrics           *PodMetrics

	allocated inventory.Allocation
	listed    time.Time
}

// Rounds are the looks of the annotator.
func (a *Annotator) Rounds() *polling.Rounds {
	return &polling.Rounds{
		Poll: a.Poll, Interval: a.Interval, Clock: a.Clock, Log: a.Log, NotYet: "the kubelet has not been queried yet",
		Fails: "GPU annotation of pods failed, retrying", Works: "GPU annotation of pods recovered",
		Failed: func(bool) { a.Metrics.Failures.Inc() },
	}
}

// Poll asks the kubelet, and if the answer has changed, or Refresh has passed, compares it
// with the pods and writes what differs.
func (a *Annotator) Poll(ctx context.Context) error {
	held, err := a.Kubelet.Allocated(ctx)
	if err != nil {
		return err
	}
	now := a.Clock.Now()
	if a.allocated != nil && reflect.DeepEqual(held, a.allocated) && now.Sub(a.listed) < a.Refresh {
		return nil
	}
	pods, err := a.pods(ctx)
	if err != nil {
		return err
	}
	changes, all := inventory.Changes(held, pods)
	var problems []error
	for _, c := range changes {
		problems = append(problems, a.write(ctx, c))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if a.allocated, a.listed = held, now; !all {
		a.allocated = nil // listed again at the next look
	}
	return nil
}

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// pods are those of the node, from the API server's cache.
func (a *Annotator) pods(ctx context.Context) ([]inventory.Marked, error) {
	list, err := a.Pods.Resource(podResource).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", a.Node).String(), ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("listing the node's pods: %w", err)
	}
	out := make([]inventory.Marked, 0, len(list.Items))
	for _, p := range list.Items {
		out = append(out, inventory.Marked{
			Pod: inventory.Pod{Namespace: p.Namespace, Name: p.Name}, UID: string(p.UID), Annotation: p.Annotations[nodemark.DevicesAnnotation],
		})
	}
	return out, nil
}

// write changes the annotation of the pod that was seen, and of no other of its
// name; one that is gone needs none.
func (a *Annotator) write(ctx context.Context, c inventory.Change) error {
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
	a.Log.Info("pod annotated with its GPUs", "namespace", c.Namespace, "pod", c.Name, "devices", c.Annotation)
	return nil
}

const (
	// answerBytes is what the kubelet's own client allows.
	answerBytes = 16 << 20
	// queryTimeout bounds one question.
	queryTimeout = 10 * time.Second
)

// Kubelet is a connection to the PodResources socket of the node's kubelet, which knows
// which devices it gave to which pods.
type Kubelet struct {
	conn   *grpc.ClientConn
	lister podresources.PodResourcesListerClient
}

// Dial prepares to ask at a socket, a path; it does not connect yet.
func Dial(socket string) (*Kubelet, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytes)))
	if err != nil {
		return nil, fmt.Errorf("creating the kubelet client: %w", err)
	}
	return &Kubelet{conn, podresources.NewPodResourcesListerClient(conn)}, nil
}

// Allocated returns what the kubelet gave to the pods that run on the node.
func (k *Kubelet) Allocated(ctx context.Context) (inventory.Allocation, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	answer, err := k.lister.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing the devices of pods from the kubelet: %w", err)
	}
	held := inventory.Allocation{}
	for _, p := range answer.GetPodResources() {
		pod := inventory.Pod{Namespace: p.GetNamespace(), Name: p.GetName()}
		held.Give(pod, "", nil)
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				held.Give(pod, d.GetResourceName(), d.GetDeviceIds())
			}
		}
	}
	return held, nil
}

// Close ends the connection.
func (k *Kubelet) Close() error { return k.conn.Close() }

// PodMetrics of the annotator.
type PodMetrics struct {
	// Annotated counts annotations that were set or removed, Failures reconciliations
	// that failed.
	Annotated, Failures prometheus.Counter
}

// NewPodMetrics registers the metrics.
func NewPodMetrics(r prometheus.Registerer) *PodMetrics {
	m := &PodMetrics{
		Annotated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_metadata_collector_pod_annotation_updates_total", Help: "GPU annotations of Pods that were set or removed.",
		}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_metadata_collector_pod_annotation_failures_total", Help: "Reconciliations that could not annotate Pods with their GPUs.",
		}),
	}
	r.MustRegister(m.Annotated, m.Failures)
	return m
}
