package reconciler

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// undecodableStatus is accepted by the definition, whose date-time has more forms than the
// type's.
const undecodableStatus = `{"status":{"startTime":"2026-03-01t12:00:00z"}}`

// TestAnUndecodableObjectHoldsUpNoOther: one that is there when the watch begins, and one
// that becomes so; objects made after each are worked on, and the undecodable ones stay.
func TestAnUndecodableObjectHoldsUpNoOther(t *testing.T) {
	for _, kind := range []Kind{RebootNode(), TerminateNode()} {
		t.Run(kind.Name, func(t *testing.T) {
			w := newWorld(t)
			w.kind = kind
			resource := w.cluster.Dynamic().Resource(schema.GroupVersionResource{
				Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: strings.ToLower(kind.Name) + "s",
			})
			spoil := func(name string) {
				t.Helper()
				_, err := resource.Patch(t.Context(), w.prefix+name, types.MergePatchType, []byte(undecodableStatus), metav1.PatchOptions{}, "status")
				if err != nil {
					t.Fatalf("the definition refuses it, so that the case proves nothing: %v", err)
				}
			}
			w.addNode(localcluster.NodeSpec{Name: "n"})
			w.create("bad", "n", "")
			spoil("bad")
			if err := w.objects.List(t.Context(), kind.list()); err == nil {
				t.Fatal("the object can be decoded, so that the case proves nothing")
			}
			config, err := Decodable(w.cluster.RESTConfig(), controller.NewSkips(w.janitor.Events, slog.New(slog.DiscardHandler), prometheus.NewRegistry()))
			if err != nil {
				t.Fatal(err)
			}
			if w.objects, err = Objects(config); err != nil {
				t.Fatal(err)
			}
			w.restart()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- NewWatch(config, 1, clock.RealClock{}, w.janitor.Log, w.janitor).Run(ctx) }()
			served := func(name string) {
				t.Helper()
				began := time.Now()
				w.create(name, "n", "")
				err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
					return w.object(name).Progress().StartTime != nil, nil
				})
				if err != nil {
					t.Fatalf("%s is not worked on: %v", name, err)
				}
				t.Logf("%s was worked on after %s", name, time.Since(began))
			}
			served("first")
			spoil("first")
			served("second")
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the watch ended with %v", err)
			}
		})
	}
}

// TestAnUndecodableGPUResetHidesNoOther: its controller runs on the same clients.
func TestAnUndecodableGPUResetHidesNoOther(t *testing.T) {
	w := newWorld(t)
	resets := w.cluster.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("gpuresets"))
	for _, name := range []string{"good", "bad"} {
		o := &v1alpha1.GPUReset{ObjectMeta: metav1.ObjectMeta{Name: w.prefix + name}, Spec: v1alpha1.GPUResetSpec{NodeName: "n"}}
		if err := w.objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resets.Delete(context.WithoutCancel(t.Context()), o.Name, metav1.DeleteOptions{}) })
	}
	if _, err := resets.Patch(t.Context(), w.prefix+"bad", types.MergePatchType, []byte(undecodableStatus), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatalf("the definition refuses it, so that the case proves nothing: %v", err)
	}
	list := &v1alpha1.GPUResetList{}
	if err := w.objects.List(t.Context(), list); err == nil {
		t.Fatal("the object can be decoded, so that the case proves nothing")
	}
	config, err := Decodable(w.cluster.RESTConfig(), controller.NewSkips(nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Objects(config)
	if err == nil {
		err = objects.List(t.Context(), list)
	}
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != w.prefix+"good" {
		t.Errorf("%d objects, %v", len(list.Items), err)
	}
}
