package reconciler_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

var rebootNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}

// bench is a reconciler on a real API server and a real store, with one node.
type bench struct {
	*reconciler.Reconciler
	t       *testing.T
	cluster *localcluster.Cluster
	store   store.Store
	clock   *clocktesting.FakeClock
	node    string
	session string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	applyCRDs(t, cluster)
	fake := clocktesting.NewFakeClock(time.Now())
	records, err := storeopen.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "records.db"), storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	t.Cleanup(func() { _ = records.Close() })
	pods, err := eviction.Default().Compile()
	if err != nil {
		t.Fatalf("compiling the eviction policy: %v", err)
	}
	b := &bench{
		t: t, cluster: cluster, store: records, clock: fake,
		node: "n-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), session: "session-of-" + t.Name(),
		Reconciler: &reconciler.Reconciler{
			Records: own(records), Repairs: compile(t, action.Default()), Policy: decision.Policy{RecoveryWithin: decision.DefaultRecoveryWithin, UnrepairedAfter: decision.DefaultUnrepairedAfter},
			Eviction: pods, Clock: fake, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: reconciler.NewMetrics(prometheus.NewRegistry()),
		},
	}
	b.Cluster = b.client(nil)
	b.Events = b.recorder(b.Cluster)
	b.addNode("boot-1")
	return b
}

// applyCRDs defines the janitor's kinds, and waits until they are served: a
// definition is accepted a moment before.
func applyCRDs(t *testing.T, cluster *localcluster.Cluster) {
	t.Helper()
	paths, err := filepath.Glob("../../../distros/helm/nvsentinel/crds/janitor*node*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("finding the CRDs: %v %v", paths, err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), f); err != nil {
			t.Fatalf("applying %s: %v", path, err)
		}
		_ = f.Close()
	}
	for _, kind := range []string{"rebootnodes", "terminatenodes"} {
		eventually(t, kind+" are served", func() (bool, error) {
			_, err := cluster.Dynamic().Resource(rebootNodes.GroupVersion().WithResource(kind)).List(t.Context(), metav1.ListOptions{})
			return err == nil, nil
		})
	}
}

func compile(t *testing.T, configs action.Configs) action.Policy {
	t.Helper()
	p, err := action.Compile(configs, action.Templates{}, nil)
	if err != nil {
		t.Fatalf("compiling the actions: %v", err)
	}
	return p
}

// client is a client of the API server; intercept may answer a request itself.
func (b *bench) client(intercept func(*http.Request) (*http.Response, error)) *kube.Client {
	b.t.Helper()
	rc := b.cluster.RESTConfig()
	if intercept != nil {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if resp, err := intercept(r); resp != nil || err != nil {
					return resp, err
				}
				return next.RoundTrip(r)
			})
		})
	}
	c, err := kube.ForConfig(rc, kube.Config{}, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// recorder writes what waits when the bench looks at the Events.
func (b *bench) recorder(c *kube.Client) *eventrecorder.Recorder {
	return eventrecorder.New(c.Clientset, eventrecorder.Component("fault-remediation"), b.clock, b.Log, prometheus.NewRegistry())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (b *bench) addNode(boot string) {
	b.t.Helper()
	_, err := b.cluster.AddNode(b.t.Context(), localcluster.NodeSpec{
		Name: b.node, BootID: boot, ProviderID: "test://" + b.node, Annotations: map[string]string{nodemark.SessionAnnotation: b.session},
	})
	if err != nil {
		b.t.Fatalf("adding node %s: %v", b.node, err)
	}
	b.patchNode(`{"spec":{"unschedulable":true},"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-state":"drain-succeeded"}}}`)
	b.t.Cleanup(func() { _ = b.cluster.DeleteNode(context.Background(), b.node) })
}

func (b *bench) patchNode(patch string, sub ...string) {
	b.t.Helper()
	_, err := b.cluster.Client().CoreV1().Nodes().Patch(b.t.Context(), b.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
	if err != nil {
		b.t.Fatalf("patching node %s: %v", b.node, err)
	}
}

// fault stores a fault in quarantine, drained.
func (b *bench) fault(id string, act record.Action) {
	b.t.Helper()
	b.undrained(id, act)
	b.update(record.NodeDrainer, id, func(s *record.Status) { s.UserPodsEvictionStatus.Status = record.EvictionSucceeded })
}

// undrained stores a fault in quarantine.
func (b *bench) undrained(id string, act record.Action) {
	b.t.Helper()
	node := b.liveNode()
	r := record.Record{
		ID: id, CreatedAt: b.clock.Now(), Node: kube.NodeIdentity(node),
		Event: record.Event{
			ID: id, NodeName: b.node, Agent: "test-monitor", CheckName: "Check", RecommendedAction: act, ProcessingStrategy: record.Process,
			IsFatal: true, GeneratedTimestamp: b.clock.Now(), Metadata: map[string]string{record.MetadataBootID: node.Status.NodeInfo.BootID},
		},
	}
	if _, err := b.store.Append(b.t.Context(), []record.Record{r}); err != nil {
		b.t.Fatalf("appending %s: %v", id, err)
	}
	b.update(record.FaultQuarantine, id, func(s *record.Status) {
		s.NodeQuarantined, s.Session = record.Quarantined, b.session
		s.QuarantineVerdict = &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}, NodeBootID: node.Status.NodeInfo.BootID, At: b.clock.Now()}
		s.Faults = []record.Fault{{Key: id}}
	})
}

func (b *bench) update(writer record.Writer, id string, change func(*record.Status)) {
	b.t.Helper()
	r := b.record(id)
	change(&r.Status)
	_, err := b.store.Update(b.t.Context(), writer, []store.Change{{ID: id, Revision: r.Revision, Status: r.Status, ExpireAt: r.ExpireAt}})
	if err != nil {
		b.t.Fatalf("updating %s as %s: %v", id, writer, err)
	}
}

// clear ends a fault, as fault-quarantine does on its recovery.
func (b *bench) clear(id string) {
	b.t.Helper()
	b.update(record.FaultQuarantine, id, func(s *record.Status) {
		at := b.clock.Now()
		s.Faults[0].ClearedTimestamp, s.Faults[0].ClearedBy = &at, "recovery"
	})
}

func (b *bench) record(id string) record.Record {
	b.t.Helper()
	r, err := b.store.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatalf("reading record %s: %v", id, err)
	}
	return r
}

func (b *bench) liveNode() *corev1.Node {
	b.t.Helper()
	n, err := b.cluster.Client().CoreV1().Nodes().Get(b.t.Context(), b.node, metav1.GetOptions{})
	if err != nil {
		b.t.Fatalf("reading node %s: %v", b.node, err)
	}
	return n
}

// objects are the maintenance objects of the bench's node.
func (b *bench) objects() []*unstructured.Unstructured {
	b.t.Helper()
	list, err := b.cluster.Dynamic().Resource(rebootNodes).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=nvsentinel"})
	if err != nil {
		b.t.Fatalf("listing maintenance objects: %v", err)
	}
	var mine []*unstructured.Unstructured
	for i := range list.Items {
		o := &list.Items[i]
		if name, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); name == b.node {
			mine = append(mine, o)
		}
	}
	return mine
}

func (b *bench) onlyObject() *unstructured.Unstructured {
	b.t.Helper()
	list := b.objects()
	if len(list) != 1 {
		b.t.Fatalf("%d maintenance objects, want 1", len(list))
	}
	return list[0]
}

// finish writes an object's status as the janitor would.
func (b *bench) finish(o *unstructured.Unstructured, conditionType, status, reason, observedBoot string) {
	b.t.Helper()
	condition := map[string]any{
		"type": conditionType, "status": status, "reason": reason, "message": "told by the test",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	o.Object["status"] = map[string]any{"conditions": []any{condition}, "preRebootBootID": "boot-1", "observedBootID": observedBoot}
	if _, err := b.cluster.Dynamic().Resource(rebootNodes).UpdateStatus(b.t.Context(), o, metav1.UpdateOptions{}); err != nil {
		b.t.Fatalf("finishing %s: %v", o.GetName(), err)
	}
}

// parks handles the node and wants it parked for a reason.
func (b *bench) parks(why decision.Reason) {
	b.t.Helper()
	err := b.Handle(b.t.Context(), b.node)
	if _, text, ok := retry.AsPark(err); !ok || !strings.HasPrefix(text, string(why)+":") {
		b.t.Fatalf("Handle = %v, want parked: %s", err, why)
	}
}

// settles handles the node and wants nothing left to wait for.
func (b *bench) settles() {
	b.t.Helper()
	if err := b.Handle(b.t.Context(), b.node); err != nil {
		b.t.Fatalf("Handle = %v, want settled", err)
	}
}

// shows compares one line about a record and the node's label with want.
func (b *bench) shows(id, want string) {
	b.t.Helper()
	r := b.record(id)
	got := record.Remediated(r.Status)
	if rem := r.Status.Remediation; rem != nil {
		got += fmt.Sprintf(" %s(%s)", rem.Outcome, rem.Reason)
		for _, a := range rem.Attempts {
			got += fmt.Sprintf(" [%d %s uid=%v sent=%v]", a.Ordinal, a.State, a.UID != "", a.SignalSent)
		}
	}
	got += " label=" + b.liveNode().Labels[nodemark.StateLabel]
	if got != want {
		b.t.Errorf("record %s:\n got %s\nwant %s", id, got, want)
	}
}

// raw is what the API server answers to a read of path.
func (b *bench) raw(path string) string {
	b.t.Helper()
	body, err := b.cluster.Client().CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(b.t.Context())
	if err != nil {
		b.t.Fatalf("reading %s: %v", path, err)
	}
	return string(body)
}

// decode reads an object from the body of a request.
func decode(t *testing.T, body []byte) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(body); err != nil {
		t.Fatalf("decoding %s: %v", body, err)
	}
	return obj
}

// own are a store's records as fault-remediation writes them.
func own(s store.Store) *consumer.Records {
	return &consumer.Records{Store: s, Writer: record.FaultRemediation}
}

// key is what a delivery of the feed enqueues.
func (b *bench) key(r record.Record) string {
	process := &daemon.Daemon{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()}
	return b.Service("fault-remediation", 1).Loop(process).Key(r)
}
