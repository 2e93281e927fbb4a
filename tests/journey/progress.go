package journey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/tests/demo"
)

// objects are the maintenance objects of the node.
func (sr *scenarioRun) objects(ctx context.Context) ([]unstructured.Unstructured, error) {
	list, err := sr.fleet.Cluster.Dynamic().Resource(demo.RebootNodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []unstructured.Unstructured
	for _, x := range list.Items {
		if name, _, _ := unstructured.NestedString(x.Object, "spec", "nodeName"); name == sr.node {
			out = append(out, x)
		}
	}
	return out, nil
}

func (sr *scenarioRun) repairs(ctx context.Context) ([]string, error) {
	list, err := sr.objects(ctx)
	var out []string
	for _, x := range list {
		out = append(out, x.GetName())
	}
	return out, err
}

// over reports whether everything that has to happen to the node has happened.
func (sr *scenarioRun) over(ctx context.Context) (bool, error) {
	faults, err := sr.faults(ctx)
	if err == nil {
		var moved strings.Builder
		for _, r := range faults {
			fmt.Fprintf(&moved, "%s at %d ", r.ID, r.Revision)
		}
		sr.moved.Store(moved.String())
	}
	if err != nil || len(faults) < sr.lines-sr.lost {
		return false, err
	}
	for _, r := range faults {
		if !record.Finished(r) {
			return false, nil
		}
	}
	left, err := sr.marks(ctx)
	if err != nil || len(left) > 0 {
		return false, err
	}
	if sr.scenario.reboots() == 0 {
		return true, nil
	}
	n, err := sr.fleet.Reboots(sr.node)
	return n >= sr.scenario.reboots(), err
}

// records are the node's, without the load.
func (sr *scenarioRun) records(ctx context.Context) ([]record.Record, error) {
	return sr.fleet.Store.List(ctx, store.Query{Selector: record.Selector{Node: sr.node, NotAgent: "journey"}})
}

// recoveries counts the node's.
func (sr *scenarioRun) recoveries(ctx context.Context) (int, error) {
	records, err := sr.records(ctx)
	n := 0
	for _, r := range records {
		if r.Event.IsHealthy {
			n++
		}
	}
	return n, err
}

func (sr *scenarioRun) faults(ctx context.Context) ([]record.Record, error) {
	records, err := sr.records(ctx)
	var out []record.Record
	for _, r := range records {
		if r.IsFault() {
			out = append(out, r)
		}
	}
	return out, err
}

// until polls cond until it holds or nothing has moved for the trip's limit. Errors
// are expected while services die; the last one is shown. A check without an answer does not
// count: until gives up at the first answer after the limit, or after twice the limit. A node
// whose faults progress step by step behind a slow database is not stuck.
func (sr *scenarioRun) until(ctx context.Context, what string, cond func(context.Context) (bool, error)) error {
	begun := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(2*sr.limit, cancel)
	defer silence.Stop()
	var last error
	for {
		began, moved := time.Now(), sr.moved.Load()
		ok, err := cond(ctx)
		if ok && err == nil {
			return nil
		}
		if sr.moved.Load() != moved {
			begun = began
			silence.Reset(2 * sr.limit)
		}
		if err != nil {
			last = err
		}
		answered := err == nil && began.Sub(begun) >= sr.limit
		if answered || !pause(ctx, 100*time.Millisecond) {
			return errors.Join(fmt.Errorf("waited %s for %s", time.Since(begun).Round(time.Millisecond), what), last)
		}
	}
}

// insist does something again until it works.
func (sr *scenarioRun) insist(ctx context.Context, what string, do func(context.Context) error) error {
	return sr.until(ctx, what, func(ctx context.Context) (bool, error) { return true, do(ctx) })
}

// pause waits for d, and reports whether it did: it returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
