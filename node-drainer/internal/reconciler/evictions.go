package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// callLimit bounds one eviction; an admission webhook may hang.
const callLimit = 30 * time.Second

// errSessionOver means that the Node stopped bearing the session between two
// evictions of one step.
var errSessionOver = errors.New("the quarantine session has ended")

// evictor takes pods away, several at once.
type evictor struct {
	client    kubernetes.Interface
	cluster   *Cluster
	clock     clock.Clock
	log       *slog.Logger
	metrics   *Metrics
	pause     *pause.Switch
	grace     time.Duration // of an eviction; 0 leaves the pod its own
	perNode   int           // evictions of one node under way
	evictions *semaphore    // of all nodes
}

// takeAway carries out an Evict or Delete step and notes each pod's result.
// The moment the cached Node does not bear the session any more, the rest of
// the pods is left.
func (e *evictor) takeAway(ctx context.Context, seen facts, step decision.Step) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(e.perNode, 1))
	for _, pod := range step.Pods {
		group.Go(func() error {
			leave, err := e.evictions.enter(ctx, seen.name)
			if err != nil {
				return err
			}
			defer leave()
			return e.one(ctx, seen, step, pod)
		})
	}
	if err := group.Wait(); err != nil && !errors.Is(err, errSessionOver) {
		return fmt.Errorf("removing Pods from node %s: %w", seen.name, err)
	}
	return nil
}

func (e *evictor) one(ctx context.Context, seen facts, step decision.Step, pod *corev1.Pod) error {
	if !e.stillIn(seen.name, step.Session) {
		return errSessionOver
	}
	fenced, release := lease.Fence(ctx)
	defer release()
	if err := fenced.Err(); err != nil {
		return fmt.Errorf("losing the leadership: %w", err)
	}
	if why, on := e.pause.On(); on {
		return retry.Park(e.pause.Wait(), why)
	}
	call, cancel := context.WithTimeout(fenced, callLimit)
	defer cancel()
	began := e.clock.Now()
	var err error
	if step.Kind == decision.Delete {
		err = Remove(call, e.client, pod)
	} else {
		err = Evict(call, e.client, pod, e.grace)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	now := e.clock.Now()
	t := e.classify(pod, err)
	t.At = now
	seen.notes.note(pod, t)
	e.metrics.tookAway(step.Kind, t.Result, now.Sub(began))
	e.log.Debug("pod removal requested", "node", seen.name, "namespace", pod.Namespace, "pod", pod.Name,
		"step", string(step.Kind), "result", string(t.Result), "message", t.Message)
	return nil
}

// stillIn asks the cached Node, which hears of a release within moments.
func (e *evictor) stillIn(node, session string) bool {
	n, err := e.cluster.Node(node)
	if err != nil {
		return false
	}
	facts := decision.NodeOf(n)
	return facts.Exists && facts.Session == session && !facts.Released
}

// Evict asks for an eviction of exactly this pod, not of a successor of its
// name. A grace of 0 leaves the pod its own.
func Evict(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, grace time.Duration) error {
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if grace > 0 {
		seconds := int64(grace / time.Second)
		options.GracePeriodSeconds = &seconds
	}
	body := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: options,
	}
	// A refusal is an answer: the client must not repeat the call by itself.
	return client.CoreV1().RESTClient().Post().MaxRetries(0).
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		Body(body).Do(ctx).Error()
}

// Remove deletes exactly this pod, without grace.
func Remove(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	none := int64(0)
	return client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &none, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
}

// classify reads the API server's answer. NotFound and Conflict mean that this
// very pod is gone or changing; a refusal is a disruption budget's only if the
// answer gives that cause, or if the pod has several budgets, which the API server answers
// with 500 and a text.
func (e *evictor) classify(pod *corev1.Pod, err error) try {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return try{Attempt: decision.Attempt{Result: decision.Accepted}}
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return refused(likeliest(e.cluster.covering(pod)))
	case isUnexplained(err):
		if all := e.cluster.covering(pod); len(all) > 1 {
			return refused(all)
		}
	}
	// The API server's Priority and Fairness suggests when to try again.
	after, _ := apierrors.SuggestsClientDelay(err)
	return try{Attempt: decision.Attempt{Result: decision.Errored, Message: err.Error(), After: time.Duration(after) * time.Second}}
}

// isUnexplained is an answer of 500 without a reason, as the eviction API gives to a pod
// with several budgets. A webhook that fails is InternalError.
func isUnexplained(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code == http.StatusInternalServerError &&
		answer.Status().Reason == metav1.StatusReasonUnknown
}

func refused(by []budget) try {
	t := try{Attempt: decision.Attempt{Result: decision.Refused}, refusers: by}
	for _, b := range by {
		t.Budgets = append(t.Budgets, b.name)
	}
	return t
}
