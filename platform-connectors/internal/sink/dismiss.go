package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// Dismissals drops the faults from the set that people clear by annotations of
// the node's Node, and informs the monitors beside it. Their recoveries go to the
// store by the connector of role cluster, past this node's spool.
type Dismissals struct {
	Fold *Fold
	// Path is the file from which the node's monitors learn which records were cleared
	// (record.ClearedList); empty informs nobody.
	Path string
	// Node is the Node as it was seen last, or nil.
	Node func() *corev1.Node

	wake retry.Wake
}

// Waker returns what to call when the Node has changed; it comes before Run.
func (d *Dismissals) Waker() func() {
	d.wake = retry.NewWake()
	return d.wake.Call
}

// Run dismisses until ctx ends. What the disk did not take is tried again when
// the Node changes next, which its heartbeat does.
func (d *Dismissals) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		}
		node := d.Node()
		if node == nil {
			continue
		}
		ids := map[string]bool{}
		for _, c := range nodemark.Clearings(node.Annotations) {
			ids[c.Record] = true
		}
		if err := d.append(slices.Sorted(maps.Keys(ids))); err != nil {
			d.Fold.Log.Error("report of manually cleared faults to the monitors failed, retrying", "error", err)
		}
		if err := d.Fold.dismiss(ids); err != nil {
			d.Fold.Log.Error("fault set save failed, retrying", "error", err)
		}
	}
}

// append adds records to the monitors' file. A file that cannot be read is started again:
// the monitors have already seen its content.
func (d *Dismissals) append(ids []string) error {
	if d.Path == "" || len(ids) == 0 {
		return nil
	}
	data, err := os.ReadFile(d.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the cleared records: %w", err)
	}
	have, err := record.ParseCleared(data)
	if err != nil {
		d.Fold.Log.Warn("file of cleared records created again", "file", d.Path, "error", err)
	}
	now, added := have.With(ids)
	if !added {
		return nil
	}
	if data, err = json.Marshal(now); err != nil {
		return fmt.Errorf("encoding the cleared records: %w", err)
	}
	return durable.Replace(d.Path, data, 0o640)
}

func (f *Fold) dismiss(ids map[string]bool) error {
	if len(ids) == 0 {
		return nil
	}
	f.work.Lock()
	defer f.work.Unlock()
	state := f.current()
	if !state.Set.Dismiss(ids) {
		return nil
	}
	f.Log.Info("faults cleared manually", "records", len(ids))
	return f.publish(state)
}

// rebuild makes an incomplete set whole: the node's history in the store, then
// what the spool holds up to the place that is folded. Nothing was confirmed
// meanwhile, so there is no gap between the two; what is in both is folded
// twice, which changes nothing.
func (f *Fold) rebuild(ctx context.Context) error {
	set := &conditions.Set{}
	if err := f.foldHistory(ctx, set); err != nil {
		return err
	}
	f.work.Lock()
	defer f.work.Unlock()
	now := f.current()
	released, _ := f.Spool.Bounds()
	for at := released; at < now.Index; {
		entries, upTo, err := f.Spool.Read(at, foldBatch)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Index <= now.Index {
				set.Fold(f.changed(ctx, e.Record))
			}
		}
		at = upTo
	}
	set.Notices = now.Set.Notices
	now.Set, now.Complete = set, true
	if err := f.publish(now); err != nil {
		return err
	}
	f.Log.Info("fault set rebuilt from the store", "checks", len(set.Checks), "faults", set.Faults())
	return nil
}

func (f *Fold) foldHistory(ctx context.Context, set *conditions.Set) error {
	ctx, cancel := context.WithTimeout(ctx, historyDeadline)
	defer cancel()
	for after := int64(0); ; {
		page, err := f.Store.History(ctx, after)
		if err != nil {
			return fmt.Errorf("reading the history of the node from the store: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, r := range page {
			if !slices.Contains(f.Elsewhere, r.Event.Agent) {
				set.FoldStored(r, f.Identity())
			}
			after = r.Append
		}
	}
}
