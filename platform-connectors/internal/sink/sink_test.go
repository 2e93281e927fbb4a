package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// queue is a spool and its reader in memory; entry i has index i+1.
type queue struct {
	epoch               string
	entries             []spool.Entry
	released, confirmed uint64
}

func (q *queue) Epoch() string { return q.epoch }

func (q *queue) Bounds() (uint64, uint64) { return q.released, uint64(len(q.entries)) }

func (q *queue) Read(after uint64, limit int) ([]spool.Entry, uint64, error) {
	after = max(after, q.released)
	upTo := min(after+uint64(limit), uint64(len(q.entries)))
	return q.entries[after:upTo], upTo, nil
}

func (q *queue) Wait(ctx context.Context, after uint64) error {
	if after < uint64(len(q.entries)) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (q *queue) Confirm(index uint64) error {
	q.confirmed = index
	return nil
}

func (q *queue) add(events ...record.Event) {
	for _, e := range events {
		n := uint64(len(q.entries)) + 1
		q.entries = append(q.entries, spool.Entry{Index: n, Record: record.Record{ID: fmt.Sprint(n), Seq: n, SeqEpoch: "pub", Event: e}})
	}
}

// history is the node's records in a store, or a store that cannot be read.
type history struct {
	records []record.Record
	err     error
	lists   int
}

func (h *history) History(ctx context.Context, after int64) ([]record.Record, error) {
	return upstream.History(ctx, h, "gpu-7", after, 2)
}

func (h *history) List(_ context.Context, q store.Query) ([]record.Record, error) {
	h.lists++
	if h.err != nil {
		return nil, h.err
	}
	var out []record.Record
	for _, r := range h.records {
		if q.Selector.Matches(r) && r.Append > q.After && len(out) < q.Limit {
			out = append(out, r)
		}
	}
	*q.More = len(out) == q.Limit
	return out, nil
}

func xid(gpu string) record.Event {
	return record.Event{
		Agent: "a", CheckName: "XID", NodeName: "gpu-7", IsFatal: true, Message: "x", RecommendedAction: record.ActionRestartBM,
		EntitiesImpacted: []record.Entity{{EntityType: "GPU", EntityValue: gpu}}, ProcessingStrategy: record.Process,
	}
}

func well(gpu string) record.Event {
	e := xid(gpu)
	e.IsHealthy, e.IsFatal = true, false
	return e
}

func minor() record.Event {
	e := xid("0")
	e.IsFatal = false
	return e
}

func newFold(t *testing.T, path string, q *queue, h *history) *Fold {
	t.Helper()
	f := &Fold{
		Path: path, Spool: q, Reader: q,
		Store: h, Identity: func() record.NodeIdentity { return record.NodeIdentity{UID: "uid-7"} },
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	f.Load()
	return f
}

// run runs the fold for a while of the bubble's time.
func run(t *testing.T, f *Fold, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// shown is the view as text.
func shown(f *Fold) []string {
	var out []string
	for _, c := range f.View().Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
	}
	return out
}

func fault(gpus ...string) []string {
	text := "XID=True "
	for _, gpu := range gpus {
		text += "GPU:" + gpu + " x Recommended Action=RESTART_BM;"
	}
	return []string{text}
}

func expect(t *testing.T, f *Fold, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, shown(f)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestFoldGoesOnWhereItsFileEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "faults.json")
		q, h := &queue{epoch: "one"}, &history{}
		q.add(xid("0"), xid("1"))
		f := newFold(t, path, q, h)
		run(t, f, time.Minute)
		expect(t, f, fault("0", "1"))
		if q.confirmed != 2 {
			t.Errorf("confirmed %d, want 2", q.confirmed)
		}
		q.add(well("0"))
		q.released = 2
		f = newFold(t, path, q, h)
		expect(t, f, fault("0", "1"))
		run(t, f, time.Minute)
		expect(t, f, fault("1"))
		if h.lists != 1 {
			t.Errorf("%d lists of the history, want the first start's", h.lists)
		}
	})
}

func TestPlaceInTheSpool(t *testing.T) {
	tests := map[string]struct {
		file     string
		complete bool
		index    uint64
	}{
		"no file":          {"", false, 4},
		"not JSON":         {"{", false, 4},
		"another version":  {`{"version":9,"epoch":"one","index":6,"complete":true,"set":{}}`, false, 4},
		"an older version": {`{"version":1,"epoch":"one","index":6,"complete":true,"set":{}}`, true, 6},
		"one of unpaired names": {`{"version":1,"epoch":"one","index":6,"complete":true,"set":{"checks":{"NIC":{"faults":[` +
			`{"entry":{"Names":["NIC:a"]},"record":{"id":"r"}},{"entry":{"Names":["NICPort:1"]},"record":{"id":"r"}}]}}}}`, false, 4},
		"no set":                     {`{"version":1,"epoch":"one","index":6,"complete":true}`, false, 4},
		"in its place":               {`{"version":2,"epoch":"one","index":6,"complete":true,"set":{}}`, true, 6},
		"still incomplete":           {`{"version":2,"epoch":"one","index":6,"complete":false,"set":{}}`, false, 6},
		"another spool":              {`{"version":2,"epoch":"old","index":99,"complete":true,"set":{}}`, true, 4},
		"the spool released more":    {`{"version":2,"epoch":"one","index":3,"complete":true,"set":{}}`, false, 4},
		"the spool lost its end":     {`{"version":2,"epoch":"one","index":11,"complete":true,"set":{}}`, false, 4},
		"everything that is spooled": {`{"version":2,"epoch":"one","index":10,"complete":true,"set":{}}`, true, 10},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "faults.json")
			if tc.file != "" {
				if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, problem := loadState(path, "one", 4, 10)
			if s.Complete != tc.complete || s.Index != tc.index || s.Epoch != "one" || s.Set == nil || s.Version != stateVersion {
				t.Errorf("%+v", s)
			}
			if (problem == "") != tc.complete && name != "still incomplete" {
				t.Errorf("problem %q", problem)
			}
		})
	}
}

// TestAFirstStartIsNoWarning: a node without a past has lost nothing.
func TestAFirstStartIsNoWarning(t *testing.T) {
	for name, tc := range map[string]struct {
		file    string
		entries []record.Event
		want    string
	}{
		"a new node":                       {"", nil, "level=INFO"},
		"a spool with a past, and no file": {"", []record.Event{xid("0")}, "level=WARN"},
		"a torn file":                      {"{", nil, "level=WARN"},
	} {
		path := filepath.Join(t.TempDir(), "faults.json")
		if tc.file != "" {
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var output bytes.Buffer
		q := &queue{}
		q.add(tc.entries...)
		f := &Fold{
			Path: path, Spool: q, Store: &history{}, Clock: clock.RealClock{},
			Log: slog.New(slog.NewTextHandler(&output, nil)), Metrics: NewMetrics(prometheus.NewRegistry()),
		}
		f.Load()
		if !strings.Contains(output.String(), tc.want) || strings.Count(output.String(), "level=") != 1 {
			t.Errorf("%s: %s", name, output.String())
		}
	}
}

func TestIncompleteSetShowsFaultsAndHoldsTheSpoolUntilRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		stored := func(n int64, e record.Event, change func(*record.Record)) record.Record {
			r := record.Record{ID: fmt.Sprint("s", n), Append: n, Seq: uint64(n), SeqEpoch: "old", Event: e}
			if change != nil {
				change(&r)
			}
			return r
		}
		wide := xid("7")
		wide.Agent, wide.CheckName = "wide", "WideCheck"
		h := &history{err: errors.New("away"), records: []record.Record{
			stored(1, xid("2"), nil),
			stored(2, xid("3"), nil),
			stored(3, well("3"), nil),
			stored(4, xid("4"), func(r *record.Record) { // cleared manually
				r.Status.Faults = []record.Fault{{Key: "a||XID|gpu-7|GPU:4||", ClearedTimestamp: &now, ClearedBy: record.ClearedManual}}
			}),
			stored(5, xid("5"), func(r *record.Record) { r.Node.UID = "another machine" }),
			stored(6, minor(), nil),
			stored(7, wide, nil), // the leader of role cluster shows it
		}}
		q := &queue{epoch: "one"}
		q.add(xid("0"), well("9"))
		f := newFold(t, filepath.Join(t.TempDir(), "faults.json"), q, h)
		f.Elsewhere = []string{"wide"}
		run(t, f, time.Minute)
		expect(t, f, fault("0"))
		q.add(well("0"))
		run(t, f, time.Minute)
		expect(t, f, nil) // healthy as far as it is known: nothing is reported
		if q.confirmed != 0 {
			t.Errorf("an incomplete set confirmed %d", q.confirmed)
		}
		if q.confirmed != 0 || h.lists < 2 {
			t.Errorf("confirmed %d after %d failed lists", q.confirmed, h.lists)
		}
		h.err = nil
		run(t, f, time.Minute)
		expect(t, f, fault("2"))
		if q.confirmed != 3 || len(f.View().Notices) != 0 {
			t.Errorf("confirmed %d, want 3; notices %v", q.confirmed, f.View().Notices)
		}
	})
}

// newPush makes a push on a fake API server.
func newPush(f *Fold, objects ...runtime.Object) (*Push, *fake.Clientset, func()) {
	client := fake.NewClientset(objects...)
	nodes := &nodeclient.Client{Nodes: client.CoreV1().Nodes(), Events: client.CoreV1().Events(metav1.NamespaceDefault)}
	p := &Push{
		View: f.View, OnReported: f.RemoveReported, Client: nodes, Clock: clock.RealClock{},
		Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	p.Node = func() *corev1.Node {
		n, err := client.CoreV1().Nodes().Get(context.Background(), "gpu-7", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return n
	}
	return p, client, p.Waker()
}

func push(t *testing.T, p *Push, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// writes are the verbs that changed something.
func writes(client *fake.Clientset) []string {
	var out []string
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" {
			out = append(out, a.GetVerb()+" "+a.GetResource().Resource+"/"+a.GetSubresource())
		}
	}
	client.ClearActions()
	return out
}

func TestPushWritesOnlyDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{epoch: "one"}
		f := newFold(t, filepath.Join(t.TempDir(), "faults.json"), q, &history{})
		q.add(xid("0"), minor())
		run(t, f, time.Minute)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}}
		p, client, _ := newPush(f, node)
		push(t, p, 10*time.Minute)
		if diff := cmp.Diff([]string{"patch nodes/status", "create events/"}, writes(client)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		if n := f.View().Notices; len(n) != 0 {
			t.Errorf("written notices still wait: %v", n)
		}
		// The same event again raises the count of the Kubernetes Event.
		q.add(minor())
		run(t, f, time.Minute)
		push(t, p, 10*time.Minute)
		if diff := cmp.Diff([]string{"create events/", "patch events/"}, writes(client)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestPushRetriesWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{epoch: "one"}
		f := newFold(t, filepath.Join(t.TempDir(), "faults.json"), q, &history{})
		q.add(xid("0"))
		run(t, f, time.Minute)
		p, client, _ := newPush(f, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}})
		failures := 0
		client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures++
			return failures < 20, nil, errors.New("the server is currently unable to handle the request")
		})
		push(t, p, time.Hour)
		if failures != 20 {
			t.Errorf("%d tries in an hour, want 20 and none after the success", failures)
		}
		if node := p.Node(); len(node.Status.Conditions) != 1 {
			t.Errorf("conditions %v", node.Status.Conditions)
		}
	})
}

func TestPushWaitsForItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{epoch: "one"}
		f := newFold(t, filepath.Join(t.TempDir(), "faults.json"), q, &history{})
		q.add(xid("0"))
		run(t, f, time.Minute)
		p, client, notify := newPush(f)
		push(t, p, time.Hour)
		if got := writes(client); len(got) != 0 {
			t.Errorf("writes without a Node: %v", got)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}}
		if err := client.Tracker().Add(node); err != nil {
			t.Fatal(err)
		}
		notify()
		push(t, p, time.Second)
		if diff := cmp.Diff([]string{"patch nodes/status"}, writes(client)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}
