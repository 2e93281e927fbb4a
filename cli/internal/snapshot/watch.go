package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/retry"
)

const (
	// StoreEvery is how often the store is looked at while somebody follows: it has
	// no watch for an account that only reads.
	StoreEvery = 2 * time.Second
	// calm is the least time between two looks.
	calm = 300 * time.Millisecond
	// again is how long after its end a watch restarts.
	again = 5 * time.Second
)

// Watch calls see whenever something of a node, or with an empty name of any, may have
// changed, until ctx ends or see returns an error: at once for the Nodes and the repair
// objects, which the API server has a watch for, and every StoreEvery for the store.
// blind is called once for each watch that fails; what it would have reported is seen
// together with the store.
func (s Sources) Watch(ctx context.Context, node string, c clock.WithTicker, see func() error, blind func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	wake := retry.NewWake()
	for _, begin := range s.watches(node) {
		watches.Go(func() { keep(ctx, c, begin, wake.Call, blind) })
	}
	tick := c.NewTicker(StoreEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C():
		}
		if err := see(); err != nil {
			return err
		}
		if !retry.Sleep(ctx, c, calm) {
			return nil
		}
	}
}

// begin starts one watch.
type begin func(ctx context.Context) (watch.Interface, error)

// watches are those of the API server; none if it cannot be asked.
func (s Sources) watches(node string) []begin {
	if s.Cluster == nil {
		return nil
	}
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = "metadata.name=" + node
	}
	out := []begin{func(ctx context.Context) (watch.Interface, error) {
		return s.Cluster.Clientset.CoreV1().Nodes().Watch(ctx, options)
	}}
	for _, kind := range repairs {
		if !served(s.Cluster, kind) {
			continue
		}
		out = append(out, func(ctx context.Context) (watch.Interface, error) {
			w, err := s.Cluster.Dynamic.Resource(kind).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind.Resource, err)
			}
			return w, nil
		})
	}
	return out
}

// keep calls notify for everything that a watch reports, and restarts the watch when it
// ends. A kind that the cluster does not know has nothing to report.
func keep(ctx context.Context, c clock.Clock, start begin, notify func(), blind func(error)) {
	for lastError := false; ctx.Err() == nil; {
		w, err := start(ctx)
		switch {
		case err == nil:
			for range w.ResultChan() {
				notify()
			}
			w.Stop()
		case ctx.Err() != nil || apierrors.IsNotFound(err):
			return
		case !lastError:
			blind(errors.Join(errors.New("watch failed, polling together with the store"), err))
			lastError = true
		}
		retry.Sleep(ctx, c, again)
	}
}
