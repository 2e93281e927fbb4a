package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/pause"
)

// repairs are the kinds of repair objects that the default mapping asks for.
var repairs = []schema.GroupVersionResource{
	{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"},
	{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "terminatenodes"},
	{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "gpuresets"},
}

// errWrites is the answer to a request that would change something.
var errWrites = errors.New("this program is read-only")

// readsOnly refuses every request but reads before it leaves this process.
type readsOnly struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r readsOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, errWrites)
	}
	return r.next.RoundTrip(req)
}

// Connect makes clients that can only read.
func Connect(rc *rest.Config, userAgent string) (*kube.Client, error) {
	rc = rest.CopyConfig(rc)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return readsOnly{next} })
	return kube.ForConfig(rc, kube.Config{}, userAgent)
}

// readNode is nil only if the API server is certain that the Node is absent.
func readNode(ctx context.Context, cluster *kube.Client, name string) (*timeline.Node, error) {
	node, err := kube.ReadNode(ctx, cluster.Clientset, name)
	if errors.Is(err, kube.ErrNodeDeleted) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seen := see(node)
	return &seen, nil
}

func listNodes(ctx context.Context, cluster *kube.Client) ([]timeline.Node, error) {
	var out []timeline.Node
	if err := kube.Each(ctx, "", cluster.Clientset.CoreV1().Nodes().List, func(n *corev1.Node) { out = append(out, see(n)) }); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return out, nil
}

// see is what matters of a Node.
func see(node *corev1.Node) timeline.Node {
	m := nodemark.Read(node)
	n := timeline.Node{
		Name: node.Name, Labels: node.Labels, Identity: kube.NodeIdentity(node), Created: node.CreationTimestamp.UTC(), Unschedulable: node.Spec.Unschedulable,
		Session: m.Session, Claim: m.Claim, State: m.State, ManagedCordon: m.Applied.Cordon, Unknown: m.Unknown, Taints: nodemark.Taints(node),
		Calls: nodemark.ParseRepairs(m.Repairs).NeedsHuman, OptedOut: m.OptedOut,
	}
	for _, f := range nodemark.ListedFaults(node) {
		n.Active = append(n.Active, f.Event)
	}
	if m.Restored.Count > 0 {
		n.Restored = &m.Restored
	}
	if m.RepeatOffender.Label {
		note, _ := nodemark.ParseRepeatOffender(m.RepeatOffender.Note)
		n.RepeatOffender = &note
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready, n.Heartbeat = string(c.Status), c.LastHeartbeatTime.UTC()
		}
		if c.Status == corev1.ConditionTrue && c.Reason == nodemark.UnhealthyReason(string(c.Type)) {
			n.Conditions = append(n.Conditions, timeline.Condition{
				Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.UTC(),
			})
		}
	}
	return n
}

// eachOf visits the objects of a kind; a cluster that does not know it has none, whether the
// caller may list it or not.
func eachOf(ctx context.Context, cluster *kube.Client, kind schema.GroupVersionResource, visit func(*unstructured.Unstructured)) error {
	err := kube.Each(ctx, "", cluster.Dynamic.Resource(kind).List, visit)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !served(cluster, kind) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", kind.Resource, err)
	}
	return nil
}

// objects are the repair objects for a node.
func objects(ctx context.Context, cluster *kube.Client, node string) (out []timeline.Object, err error) {
	for _, kind := range repairs {
		err := eachOf(ctx, cluster, kind, func(x *unstructured.Unstructured) {
			if o := read(*x); o.Node == node {
				out = append(out, o)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// read is what matters of a repair object; a field of another type is empty.
func read(x unstructured.Unstructured) timeline.Object {
	o := timeline.Object{Kind: x.GetKind(), Name: x.GetName(), UID: string(x.GetUID()), CreatedAt: x.GetCreationTimestamp().UTC(), Session: x.GetAnnotations()[nodemark.SessionAnnotation]}
	o.Node, _, _ = unstructured.NestedString(x.Object, "spec", "nodeName")
	completed, _, _ := unstructured.NestedString(x.Object, "status", "completionTime")
	o.Completed = when(completed)
	list, _, _ := unstructured.NestedSlice(x.Object, "status", "conditions")
	for _, item := range list {
		c, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string {
			s, _ := c[key].(string)
			return strings.TrimSpace(s)
		}
		o.Status = append(o.Status, timeline.Condition{
			Type: text("type"), Status: text("status"), Reason: text("reason"), Message: text("message"), Since: when(text("lastTransitionTime")),
		})
	}
	return o
}

// when parses a time of the API; zero when there is none.
func when(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// Runs are all runs of repair chains; a cluster that does not know the kind has none.
func (s Sources) Runs(ctx context.Context) (runs []v1alpha1.RepairRun, source timeline.Source) {
	source = opened(clusterName, s.ClusterError)
	var unread []timeline.Refused
	readSource(ctx, s.Within, &source, func(ctx context.Context) (err error) {
		runs, unread, err = listed[v1alpha1.RepairRun](ctx, s.Cluster, "repairruns")
		return err
	})
	if source.Read && len(unread) > 0 {
		source.Problem = fmt.Sprintf("%d runs cannot be decoded and are left out, the first is %s: %s", len(unread), unread[0].Name, unread[0].Message)
	}
	return runs, source
}

// chains are the runs of repair chains, and the chains and templates that cannot be used.
// An object that cannot be decoded is one of these.
func chains(ctx context.Context, cluster *kube.Client) ([]v1alpha1.RepairRun, []timeline.Refused, error) {
	runs, out, err := listed[v1alpha1.RepairRun](ctx, cluster, "repairruns")
	if err != nil {
		return nil, nil, err
	}
	chains, unread, err := listed[v1alpha1.RepairChain](ctx, cluster, "repairchains")
	out = append(out, unread...)
	for _, c := range chains {
		if r, bad := timeline.RefusedBy(v1alpha1.ChainKind, c.Name, c.Status.Conditions); bad {
			out = append(out, r)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	templates, unread, err := listed[v1alpha1.RepairTemplate](ctx, cluster, "repairtemplates")
	out = append(out, unread...)
	for _, t := range templates {
		if r, bad := timeline.RefusedBy(v1alpha1.TemplateKind, t.Name, t.Status.Conditions); bad {
			out = append(out, r)
		}
	}
	return runs, out, err
}

// listed are the objects of a kind of chains, and those that cannot be decoded.
func listed[T any](ctx context.Context, cluster *kube.Client, resource string) (out []T, unread []timeline.Refused, err error) {
	err = eachOf(ctx, cluster, v1alpha1.GroupVersion.WithResource(resource), func(x *unstructured.Unstructured) {
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(x.Object, &one); err != nil {
			unread = append(unread, timeline.Refused{Kind: x.GetKind(), Name: x.GetName(), Message: "cannot be decoded: " + err.Error()})
			return
		}
		out = append(out, one)
	})
	if err != nil {
		return nil, nil, err
	}
	return out, unread, nil
}

// pause reads the state of the emergency stop. Problem is why it could not be read.
func (s Sources) pause(ctx context.Context) timeline.PauseState {
	source := opened(clusterName, s.ClusterError)
	var state pause.State
	readSource(ctx, s.Within, &source, func(ctx context.Context) (err error) {
		state, err = pause.Read(ctx, s.Cluster.Clientset, s.Namespace)
		return err
	})
	return timeline.PauseState{Read: source.Read, Problem: source.Problem, On: state.On, Since: state.Since, By: state.By, Reason: state.Reason}
}
