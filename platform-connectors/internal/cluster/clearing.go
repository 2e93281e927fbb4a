// Package cluster is the work of the leader among the connectors of role cluster: it shows
// the faults that cluster-wide publishers reported as conditions of their nodes, carries out
// what people ask for with nvsentinel clear, and reports the GPU nodes that nobody watches.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// mostClearings bounds the clearings of one node that are looked at; a person clears one
// at a time.
const mostClearings = 100

// ClearingRecords is what is needed of the store.
type ClearingRecords interface {
	Get(ctx context.Context, id string) (record.Record, error)
	Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error)
}

// Clearing carries clearings out.
type Clearing struct {
	Records ClearingRecords
	Client  kubernetes.Interface
	Clock   clock.PassiveClock
	Log     *slog.Logger
}

// RequestsClearing reports whether a Node's change asks for a clearing.
func RequestsClearing(before, after *corev1.Node) bool {
	if after == nil {
		return false
	}
	var had map[string]string
	if before != nil {
		had = before.Annotations
	}
	for _, c := range nodemark.Clearings(after.Annotations) {
		key, value := c.Annotation()
		if had[key] != value {
			return true
		}
	}
	return false
}

// Handle stores the recoveries that a Node's annotations ask for. Asking again
// changes nothing: a recovery's id follows from the record's.
func (r *Clearing) Handle(ctx context.Context, name string) error {
	node, err := kube.ReadNode(ctx, r.Client, name)
	if errors.Is(err, kube.ErrNodeDeleted) {
		return nil
	}
	if err != nil {
		return err
	}
	clearings := nodemark.Clearings(node.Annotations)
	for _, c := range clearings[:min(len(clearings), mostClearings)] {
		if err := r.clear(ctx, node, c); err != nil {
			return fmt.Errorf("clearing record %s of node %s: %w", c.Record, name, err)
		}
	}
	return nil
}

// clear stores one recovery, unless it is stored or the record is no fault of
// this node, which is logged and left.
func (r *Clearing) clear(ctx context.Context, node *corev1.Node, c nodemark.Clearing) error {
	if _, err := r.Records.Get(ctx, fault.ClearingID(c.Record)); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	rec, err := store.FindOf(ctx, r.Records, node.Name, c.Record)
	if err == nil && rec.ID != c.Record {
		if _, err := r.Records.Get(ctx, fault.ClearingID(rec.ID)); !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	if errors.Is(err, store.ErrNotFound) { // one of another node is refused below, and logged
		rec, err = r.Records.Get(ctx, c.Record)
	}
	if errors.Is(err, store.ErrNotFound) {
		r.Log.Warn("manual clear ignored: record not found", "node", node.Name, "record", c.Record, "by", c.By)
		return nil
	}
	if err != nil {
		return err
	}
	machine := kube.NodeIdentity(node)
	if why := RefusedClearing(rec, node.Name, machine); why != "" {
		r.Log.Warn("manual clear rejected", "node", node.Name, "record", rec.ID, "by", c.By, "why", why)
		return nil
	}
	recovery := fault.ManualClearance(rec, c.By, c.Reason, machine, r.Clock.Now().UTC())
	results, err := r.Records.Append(ctx, []record.Record{recovery})
	if err != nil {
		return err
	}
	r.Log.Info("fault cleared manually", "node", node.Name, "record", rec.ID, "recovery", recovery.ID, "by", c.By, "reason", c.Reason, "stored", results[0] == store.Appended)
	return nil
}

// RefusedClearing returns why a record cannot be cleared on a node; empty if it can be.
func RefusedClearing(r record.Record, node string, machine record.NodeIdentity) string {
	switch {
	case r.Event.NodeName != node:
		return "the record is about node " + r.Event.NodeName
	case !r.IsFault():
		return "the record is a recovery and not a fault"
	case !r.Acts():
		return "the record is PERSIST_ONLY and leads to no action"
	case fault.Compare(fault.Of(r), machine) == fault.AnotherMachine:
		return "the record is about an earlier machine with the same node name"
	}
	return ""
}
