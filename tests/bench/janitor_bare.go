package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// bareReboots makes the requests of a reboot and decides nothing: for every node,
// as many at once as the janitor works on, with the same plugin and machines
// between them. What it leaves is removed.
func (r *janitorRun) bareReboots(ctx context.Context) (time.Duration, error) {
	n := r.o.Sizes.Reboots
	began := time.Now()
	if err := r.createReboots(ctx, "bare-"); err != nil {
		return 0, err
	}
	turns := make(chan struct{}, janitorWorkers)
	problems := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { problems[i] = (&bareReboot{run: r, number: i}).repair(ctx, turns) })
	}
	all.Wait()
	took := time.Since(began)
	return took, errors.Join(append(problems, r.objects().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))...)
}

func (r *janitorRun) objects() dynamic.ResourceInterface {
	return r.cluster.Dynamic().Resource(rebootNodes)
}

// bareReboot is one of them.
type bareReboot struct {
	run    *janitorRun
	number int
	object *unstructured.Unstructured
	steps  int
}

func (b *bareReboot) node() string { return fmt.Sprintf("node-%d", b.number) }

// repair is two turns: up to the answer to the signal, and from the other boot id
// on.
func (b *bareReboot) repair(ctx context.Context, turns chan struct{}) error {
	turn := func(steps ...func(context.Context) error) error {
		turns <- struct{}{}
		defer func() { <-turns }()
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	err := turn(b.read, b.mark(`["bench/claim"]`), b.status, b.claim(`"bench"`), b.announce, b.status,
		func(ctx context.Context) error { return pause(ctx, answerTime) }, b.status)
	if err == nil {
		err = pause(ctx, rebootTime)
	}
	if err == nil {
		err = b.run.boot(ctx, b.node(), "bare")
	}
	if err == nil {
		err = turn(b.read, b.status, b.claim("null"), b.mark("null"))
	}
	return err
}

func (b *bareReboot) read(ctx context.Context) (err error) {
	if b.object, err = b.run.objects().Get(ctx, fmt.Sprintf("bare-%d", b.number), metav1.GetOptions{}); err == nil {
		_, err = b.run.client.CoreV1().Nodes().Get(ctx, b.node(), metav1.GetOptions{})
	}
	return err
}

// mark writes the finalizers.
func (b *bareReboot) mark(finalizers string) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		b.object, err = b.run.objects().Patch(ctx, b.object.GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers), metav1.PatchOptions{})
		return err
	}
}

// status writes a status of about the janitor's size.
func (b *bareReboot) status(ctx context.Context) (err error) {
	b.steps++
	now := time.Now().UTC().Format(time.RFC3339)
	var conditions []any
	for _, kind := range []string{"SignalSent", "NodeReady", "Processing", "Succeeded"} {
		conditions = append(conditions, map[string]any{
			"type": kind, "status": "Unknown", "reason": "Bench", "message": fmt.Sprintf("write %d", b.steps), "lastTransitionTime": now,
		})
	}
	b.object.Object["status"] = map[string]any{"startTime": now, "idempotencyKey": string(b.object.GetUID()), "nodeName": b.node(), "conditions": conditions}
	b.object, err = b.run.objects().UpdateStatus(ctx, b.object, metav1.UpdateOptions{})
	return err
}

// claim writes an annotation of the Node.
func (b *bareReboot) claim(value string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := b.run.client.CoreV1().Nodes().Patch(ctx, b.node(), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/claim":%s}}}`, value), metav1.PatchOptions{})
		return err
	}
}

func (b *bareReboot) announce(ctx context.Context) error {
	_, err := b.run.client.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bare-%d", b.number)}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: b.node()},
		Reason: "Bench", Message: "RebootNode requests a provider action: reboot",
	}, metav1.CreateOptions{})
	return err
}
