package controller

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"
)

// shelf is an API server with one object of a newer version, as far as updates go.
type shelf struct {
	client.Client
	object map[string]any
	sent   []client.Object
	fail   error
}

func (s *shelf) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return corev1.SchemeGroupVersion.WithKind("Node"), nil
}

func (s *shelf) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o := runtime.DeepCopyJSON(s.object)
	if raw, ok := into.(*unstructured.Unstructured); ok {
		raw.Object = o
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o, into)
}

func (s *shelf) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	s.sent = append(s.sent, o.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // it is one
	o.SetResourceVersion("8")
	return s.fail
}

func (s *shelf) Status() client.SubResourceWriter { return shelfStatus{of: s} }

type shelfStatus struct {
	client.SubResourceWriter
	of *shelf
}

func (s shelfStatus) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.of.Update(ctx, o)
}

func newer() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n", "resourceVersion": "7", "newer": "m"},
		"spec": map[string]any{"unschedulable": true, "newer": int64(5)},
		"status": map[string]any{"newer": map[string]any{"x": []any{"y"}}, "conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "lastHeartbeatTime": nil, "lastTransitionTime": nil, "score": 1.5},
			map[string]any{"type": "Other", "status": "True", "lastHeartbeatTime": nil, "lastTransitionTime": nil, "score": 2.5},
		}},
	}
}

// TestUpdatePreservesUnknownFields: an update preserves unknown fields of the object, its status
// and the elements of a list that it reorders.
func TestUpdatePreservesUnknownFields(t *testing.T) {
	for name, update := range map[string]func(client.Client, client.Object) error{
		"update": func(c client.Client, o client.Object) error { return c.Update(t.Context(), o) },
		"status": func(c client.Client, o client.Object) error { return c.Status().Update(t.Context(), o) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{object: newer()}
			node := &corev1.Node{}
			if err := s.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
				t.Fatal(err)
			}
			c := node.Status.Conditions
			node.Status.Conditions = []corev1.NodeCondition{{Type: "Third"}, c[1], c[0]}
			node.Status.Conditions[1].Status = "False"
			if err := update(keeping{s}, node); err != nil {
				t.Fatal(err)
			}
			sent, ok := s.sent[0].(*unstructured.Unstructured)
			if !ok || len(s.sent) != 1 {
				t.Fatalf("sent %T", s.sent[0])
			}
			for _, tt := range []struct {
				want any
				path []string
			}{
				{"m", []string{"metadata", "newer"}}, {int64(5), []string{"spec", "newer"}}, {true, []string{"spec", "unschedulable"}},
				{map[string]any{"x": []any{"y"}}, []string{"status", "newer"}}, {"Node", []string{"kind"}}, {"7", []string{"metadata", "resourceVersion"}},
			} {
				got, _, err := unstructured.NestedFieldNoCopy(sent.Object, tt.path...)
				if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
					t.Errorf("%v: %v (-want +sent):\n%s", tt.path, err, diff)
				}
			}
			var scores []any
			list, _, _ := unstructured.NestedSlice(sent.Object, "status", "conditions")
			for _, x := range list {
				condition, _ := x.(map[string]any)
				scores = append(scores, condition["type"], condition["status"], condition["score"])
			}
			if diff := cmp.Diff([]any{"Third", "", nil, "Other", "False", 2.5, "Ready", "True", 1.5}, scores); diff != "" {
				t.Errorf("conditions (-want +sent):\n%s", diff)
			}
			if node.ResourceVersion != "8" || node.Status.Conditions[1].Type != "Other" {
				t.Errorf("the object is %+v afterwards", node.ObjectMeta)
			}
		})
	}
}

// TestUpdateOfKnownFields: the client sends the update as it is, and sends none of an object that
// has changed since.
func TestUpdateOfKnownFields(t *testing.T) {
	known := newer()
	delete(known["metadata"].(map[string]any), "newer") //nolint:forcetypeassert // made above
	known["spec"], known["status"] = map[string]any{"unschedulable": true}, map[string]any{}
	s := &shelf{object: known, fail: errors.New("away")}
	node := &corev1.Node{}
	if err := s.Get(t.Context(), client.ObjectKey{}, node); err != nil {
		t.Fatal(err)
	}
	if err := (keeping{s}).Update(t.Context(), node); !errors.Is(err, s.fail) {
		t.Errorf("its error is %v", err)
	}
	if _, typed := s.sent[0].(*corev1.Node); !typed {
		t.Errorf("sent a %T", s.sent[0])
	}
	node.ResourceVersion = "6"
	if err := (keeping{s}).Status().Update(t.Context(), node); !apierrors.IsConflict(err) || len(s.sent) != 1 {
		t.Errorf("an object that has changed since: %v, sent %d", err, len(s.sent))
	}
	node.ResourceVersion = "" // whatever is there is overwritten
	if err := (keeping{s}).Update(t.Context(), node); !errors.Is(err, s.fail) || len(s.sent) != 2 {
		t.Errorf("an object without a version: %v, sent %d", err, len(s.sent))
	}
}
