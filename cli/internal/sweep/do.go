package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/cli/removal"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Do removes what the plan of these facts lists, and writes into it what became of each
// item. Whatever stops it, the next plan goes on from there.
func (s Sweep) Do(ctx context.Context, f removal.Facts, p *removal.Plan) {
	for i := range f.Nodes {
		s.cleanNode(ctx, &f.Nodes[i], p)
	}
	for i := range p.Items {
		item := &p.Items[i]
		switch {
		case !item.Remove || item.Outcome != "":
		case item.Kind == removal.PodAnnotation:
			settle(item, s.cleanPod(ctx, item))
		case item.Kind == removal.CRD:
			settle(item, s.dropDefinition(ctx, item, f))
		default:
			settle(item, s.drop(ctx, item))
		}
	}
}

// settle writes down what became of an item.
func settle(i *removal.Item, err error) {
	switch {
	case err == nil:
		i.Outcome = removal.Removed
	case errors.Is(err, kube.ErrConflict):
		i.Outcome, i.Problem = removal.Changed, "it has changed since it was listed: run the command again"
	default:
		i.Outcome, i.Problem = removal.Failed, err.Error()
	}
}

// cleanNode takes marks and conditions off a Node; when the marks changed meanwhile,
// the conditions are looked at again next time as well.
func (s Sweep) cleanNode(ctx context.Context, node *corev1.Node, p *removal.Plan) {
	ctx, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	items, bears, gone := itemsOf(node, p)
	var err error
	if bears {
		_, err = kube.PatchNode(ctx, s.Cluster.Clientset, node, marks.Clean)
	}
	if err == nil && len(gone) > 0 {
		err = s.dropConditions(ctx, node, gone)
	}
	if errors.Is(err, kube.ErrNodeDeleted) {
		err = nil // and with it its marks
	}
	for _, item := range items {
		settle(item, err)
	}
}

// itemsOf are the items of a Node that go, whether there are marks among them, and the
// conditions among them.
func itemsOf(node *corev1.Node, p *removal.Plan) (items []*removal.Item, bears bool, gone []string) {
	for i := range p.Items {
		item := &p.Items[i]
		if item.Name != node.Name || !item.Remove {
			continue
		}
		switch item.Kind {
		case removal.NodeCondition:
			gone = append(gone, item.Mark)
		case removal.NodeCordon, removal.NodeTaint, removal.NodeLabel, removal.NodeAnnotation:
			bears = true
		default:
			continue
		}
		items = append(items, item)
	}
	return items, bears, gone
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// dropConditions takes conditions of the connectors off a Node, while each stands where
// and as it was seen, but for its heartbeat.
func (s Sweep) dropConditions(ctx context.Context, node *corev1.Node, gone []string) error {
	patch := []operation{{"test", "/metadata/uid", node.UID}}
	for i, c := range slices.Backward(node.Status.Conditions) {
		if nodemark.AuthorOf(c) != nodemark.Connector || !slices.Contains(gone, removal.ConditionMark(c)) {
			continue
		}
		at := fmt.Sprintf("/status/conditions/%d", i)
		patch = append(patch,
			operation{"test", at + "/type", c.Type}, operation{"test", at + "/status", c.Status},
			operation{"test", at + "/reason", c.Reason}, operation{"test", at + "/message", c.Message}, operation{Op: "remove", Path: at})
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = s.Cluster.Clientset.CoreV1().Nodes().Patch(ctx, node.Name, types.JSONPatchType, body, metav1.PatchOptions{}, "status")
	return lost(err)
}

func (s Sweep) cleanPod(ctx context.Context, i *removal.Item) error {
	ctx, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	at := "/metadata/annotations/" + strings.ReplaceAll(i.Mark, "/", "~1")
	body, err := json.Marshal([]operation{{"test", "/metadata/uid", i.Target.UID}, {"test", at, i.Target.Was}, {Op: "remove", Path: at}})
	if err != nil {
		return err
	}
	_, err = s.Cluster.Clientset.CoreV1().Pods(i.Namespace).Patch(ctx, i.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	return lost(err)
}

// drop removes an object that is as it was seen. Finalizers of the project go first, in a write
// with the same condition.
func (s Sweep) drop(ctx context.Context, i *removal.Item) error {
	ctx, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	objects := s.Cluster.Dynamic.Resource(i.Target.Resource).Namespace(i.Namespace)
	version := i.Target.Version
	if len(i.Target.Finalizers) > 0 {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": i.Target.UID, "resourceVersion": version, "finalizers": nil}})
		if err != nil {
			return err
		}
		after, err := objects.Patch(ctx, i.Name, types.MergePatchType, body, metav1.PatchOptions{})
		if err != nil {
			return lost(err)
		}
		version = after.GetResourceVersion()
	}
	return lost(objects.Delete(ctx, i.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: new(types.UID(i.Target.UID)), ResourceVersion: &version},
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}))
}

// dropDefinition removes a definition that has no objects any more: one that was made
// meanwhile, or could not be removed, would go with it unnamed.
func (s Sweep) dropDefinition(ctx context.Context, i *removal.Item, f removal.Facts) error {
	for _, d := range f.Definitions {
		if d.Name != i.Name {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, s.Within)
		left, err := s.objects(bounded, d.Resource, "")
		cancel()
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("removing the CRD: %d objects of its kind remain: %w", len(left), kube.ErrConflict)
		}
	}
	return s.drop(ctx, i)
}

// lost is the error of a write: what is gone is as it should be, and what has changed is
// kube.ErrConflict.
func lost(err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err), kube.TestFailed(err):
		return kube.ErrConflict
	}
	return err
}
