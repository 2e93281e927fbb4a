package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// widgetDefinition is the definition of an older version: it bounds nothing.
const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.skipping.nvsentinel.test}
spec:
  group: skipping.nvsentinel.test
  scope: Cluster
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
`

var widgets = schema.GroupVersionResource{Group: "skipping.nvsentinel.test", Version: "v1", Resource: "widgets"}

type widgetSpec struct {
	Count int32           `json:"count,omitempty"`
	For   metav1.Duration `json:"for,omitzero"`
	At    *metav1.Time    `json:"at,omitempty"`
}

type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec widgetSpec `json:"spec"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	out := *w
	w.DeepCopyInto(&out.ObjectMeta)
	out.Spec.At = w.Spec.At.DeepCopy()
	return &out
}

type widgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []widget `json:"items"`
}

func (w *widgetList) DeepCopyObject() runtime.Object {
	out := &widgetList{TypeMeta: w.TypeMeta, ListMeta: w.ListMeta}
	for i := range w.Items {
		out.Items = append(out.Items, *w.Items[i].DeepCopyObject().(*widget)) //nolint:forcetypeassert // it is one
	}
	return out
}

func addWidgets(s *runtime.Scheme) error {
	of := widgets.GroupVersion()
	s.AddKnownTypeWithName(of.WithKind("Widget"), &widget{})
	s.AddKnownTypeWithName(of.WithKind("WidgetList"), &widgetList{})
	metav1.AddToGroupVersion(s, of)
	return nil
}

// shop is an API server with widgets.
type shop struct {
	*testing.T
	cluster *localcluster.Cluster
	config  *rest.Config // of Skipping
	metrics *prometheus.Registry
	names   []string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{T: t, cluster: localcluster.ForTest(t, localcluster.Options{}), metrics: prometheus.NewRegistry()}
	if err := s.cluster.Apply(t.Context(), strings.NewReader(widgetDefinition)); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	events := eventrecorder.New(s.cluster.Client(), eventrecorder.Component("shop"), clock.RealClock{}, log, s.metrics)
	go func() { _ = events.Run(t.Context()) }()
	var err error
	if s.config, err = controller.Skipping(s.cluster.RESTConfig(), controller.NewSkips(events, log, s.metrics), addWidgets); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range s.names {
			_ = s.cluster.Dynamic().Resource(widgets).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		}
	})
	return s
}

func (s *shop) create(name, spec string) {
	s.Helper()
	text := fmt.Sprintf("{apiVersion: skipping.nvsentinel.test/v1, kind: Widget, metadata: {name: %s}, spec: %s}", name, spec)
	if err := s.cluster.Apply(s.Context(), strings.NewReader(text)); err != nil {
		s.Fatalf("the API server rejects %s: %v", spec, err)
	}
	s.names = append(s.names, name)
}

func (s *shop) change(name, spec string) {
	s.Helper()
	patch := []byte(fmt.Sprintf(`{"spec":%s}`, spec))
	if _, err := s.cluster.Dynamic().Resource(widgets).Patch(s.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// list is what a reader has.
func (s *shop) list(of client.Reader) ([]string, error) {
	list := &widgetList{}
	if err := of.List(s.Context(), list); err != nil {
		return nil, err
	}
	var out []string
	for _, w := range list.Items {
		out = append(out, w.Name)
	}
	slices.Sort(out)
	return out, nil
}

// await waits until a reader has what is wanted.
func (s *shop) await(of client.Reader, want ...string) {
	s.Helper()
	var got []string
	err := wait.PollUntilContextTimeout(s.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (done bool, err error) {
		got, err = s.list(of)
		return slices.Equal(got, want), err
	})
	if err != nil {
		s.Fatalf("%v: it has %q, want %q", err, got, want)
	}
}

// undecodables are specs that the widgets' definition accepts and their type cannot decode.
var undecodables = []string{
	`{"count":3000000000}`, `{"count":"many"}`, `{"for":"9999999999h"}`, `{"for":"soon"}`, `{"at":"2026-03-01T12:00:00+0000"}`, `{"count":[1]}`,
}

// TestUndecodableObjectsAreLeftOutOfLists, and the others are there; a client that is not
// of Skipping has none.
func TestUndecodableObjectsAreLeftOutOfLists(t *testing.T) {
	s := newShop(t)
	s.create("a", `{"count":1}`)
	s.create("z", `{"count":2}`)
	live, err := controller.Live(s.config, addWidgets)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := controller.Live(s.cluster.RESTConfig(), addWidgets)
	if err != nil {
		t.Fatal(err)
	}
	for i, spec := range undecodables {
		name := fmt.Sprintf("m%d", i)
		s.create(name, spec)
		if got, err := s.list(bare); err == nil {
			t.Errorf("%s: without Skipping the list is %q: the case proves nothing", spec, got)
		}
		if got, err := s.list(live); err != nil || !slices.Equal(got, []string{"a", "z"}) {
			t.Errorf("%s: the list is %q, %v", spec, got, err)
		}
		if err := live.Get(t.Context(), client.ObjectKey{Name: name}, &widget{}); err == nil || client.IgnoreNotFound(err) == nil {
			t.Errorf("%s: reading the object itself: %v, want an error that is not NotFound", spec, err)
		}
	}
	want := fmt.Sprintf("# HELP nvsentinel_undecodable_objects Objects that the API server accepted and this service cannot decode, by kind. "+
		"They are skipped, and the others are processed.\n# TYPE nvsentinel_undecodable_objects gauge\nnvsentinel_undecodable_objects{kind=%q} %d\n", "Widget", len(undecodables))
	if err := testutil.GatherAndCompare(s.metrics, bytes.NewBufferString(want), "nvsentinel_undecodable_objects"); err != nil {
		t.Error(err)
	}
	if why := controller.Unserved(t.Context(), live, map[string]client.ObjectList{"Widget": &widgetList{}}); why != "" {
		t.Errorf("unserved: %s", why)
	}
}

// TestUndecodableObjectsAreLeftOutOfWatches: the cache has the others, those that are made
// later among them; an object leaves the cache while it is undecodable.
func TestUndecodableObjectsAreLeftOutOfWatches(t *testing.T) {
	s := newShop(t)
	s.create("a", `{"count":1}`)
	for i, spec := range undecodables {
		s.create(fmt.Sprintf("before%d", i), spec)
	}
	mgr, err := controller.Manager(s.config, cache.Options{}, slog.New(slog.DiscardHandler), addWidgets)
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Fill(t.Context(), mgr, &widget{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the cache is not synced")
	}
	s.await(mgr.GetCache(), "a")
	for i, spec := range undecodables {
		s.create(fmt.Sprintf("later%d", i), spec)
	}
	s.create("b", `{"count":2}`)
	s.await(mgr.GetCache(), "a", "b")
	s.change("a", `{"count":3000000000}`)
	s.await(mgr.GetCache(), "b")
	s.change("a", `{"count":3}`)
	s.await(mgr.GetCache(), "a", "b")
	s.waitForEvent("later1", "count")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// waitForEvent waits for the Event about an object.
func (s *shop) waitForEvent(name, field string) {
	s.Helper()
	var got []string
	err := wait.PollUntilContextTimeout(s.Context(), 10*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := s.cluster.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return false, err
		}
		got = nil
		for _, e := range list.Items {
			got = append(got, fmt.Sprintf("%s %s %s: %s", e.Type, e.InvolvedObject.Kind, e.Reason, e.Message))
		}
		return len(got) > 0, nil
	})
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "Warning Widget ObjectUndecodable: Widget "+name+" cannot be decoded") || !strings.Contains(got[0], field) {
		s.Errorf("%v: the Events are %q", err, got)
	}
}

// TestSkippingLeavesOtherObjectsAlone: unstructured readers of a kind that is not among
// those added get everything.
func TestSkippingLeavesOtherObjectsAlone(t *testing.T) {
	s := newShop(t)
	s.create("m", undecodables[0])
	config, err := controller.Skipping(s.cluster.RESTConfig(), controller.NewSkips(nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	live, err := controller.Live(config)
	if err != nil {
		t.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(widgets.GroupVersion().WithKind("WidgetList"))
	if err := live.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range list.Items {
		got = append(got, o.GetName())
	}
	if diff := cmp.Diff([]string{"m"}, got); diff != "" {
		t.Error(diff)
	}
}
