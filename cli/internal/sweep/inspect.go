// Package sweep sees what the suite has left in a cluster, and removes what a plan
// lists, each thing only while it is as it was seen.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/cli/removal"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// ofSuite selects what the chart has made.
const ofSuite = "app.kubernetes.io/part-of=nvsentinel"

// Sweep looks at a cluster, and cleans it.
type Sweep struct {
	Cluster   *kube.Client
	Namespace string
	Clock     clock.WithTicker
	// Within bounds each reading of one kind, and each write.
	Within time.Duration
}

// Inspect reads everything that a removal is decided from. What cannot be read is named
// in the facts; it is an error that nothing can be.
func (s Sweep) Inspect(ctx context.Context) (removal.Facts, error) {
	f := removal.Facts{Namespace: s.Namespace}
	reads := []struct {
		what string
		from func(context.Context, *removal.Facts) error
	}{
		{"workloads", s.workloads}, {"nodes", s.nodes}, {"pods", s.pods}, {"config maps", s.configMaps}, {"leases", s.leases},
		{"CRDs and their objects", s.definitions}, {"events", s.events},
	}
	for _, read := range reads {
		bounded, cancel := context.WithTimeout(ctx, s.Within)
		if err := read.from(bounded, &f); err != nil {
			f.Unread = append(f.Unread, read.what+": "+err.Error())
		}
		cancel()
	}
	f.Now = s.Cluster.Clock(s.Clock).Now()
	if len(f.Unread) == len(reads) {
		return f, errors.New("reading the cluster: no kind could be read: " + strings.Join(f.Unread, "; "))
	}
	return f, nil
}

// workloads are looked for everywhere: there is one installation in a cluster, and a
// wrong namespace must not hide it.
func (s Sweep) workloads(ctx context.Context, f *removal.Facts) error {
	for _, kind := range []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "daemonsets"}, {Version: "v1", Resource: "pods"},
	} {
		list, err := s.objects(ctx, kind, ofSuite)
		if err != nil {
			return err
		}
		for _, x := range list {
			phase, _, _ := unstructured.NestedString(x.Object, "status", "phase")
			if phase != string(corev1.PodSucceeded) && phase != string(corev1.PodFailed) {
				f.Workloads = append(f.Workloads, x.GetKind()+" "+x.GetNamespace()+"/"+x.GetName())
			}
		}
	}
	return nil
}

func (s Sweep) nodes(ctx context.Context, f *removal.Facts) error {
	return kube.Each(ctx, "", s.Cluster.Clientset.CoreV1().Nodes().List, func(n *corev1.Node) { f.Nodes = append(f.Nodes, *n) })
}

func (s Sweep) pods(ctx context.Context, f *removal.Facts) error {
	return kube.Each(ctx, "", s.Cluster.Clientset.CoreV1().Pods(metav1.NamespaceAll).List, func(p *corev1.Pod) {
		if _, has := p.Annotations[nodemark.DevicesAnnotation]; has {
			f.Pods = append(f.Pods, p.ObjectMeta)
		}
	})
}

func (s Sweep) configMaps(ctx context.Context, f *removal.Facts) error {
	return kube.Each(ctx, "", s.Cluster.Clientset.CoreV1().ConfigMaps(s.Namespace).List, func(c *corev1.ConfigMap) {
		f.ConfigMaps = append(f.ConfigMaps, *c)
	})
}

func (s Sweep) leases(ctx context.Context, f *removal.Facts) error {
	for namespace, into := range map[string]*[]coordinationv1.Lease{s.Namespace: &f.Leases, nodelease.DefaultNamespace: &f.Claims} {
		err := kube.Each(ctx, "", s.Cluster.Clientset.CoordinationV1().Leases(namespace).List, func(l *coordinationv1.Lease) { *into = append(*into, *l) })
		if err != nil {
			return err
		}
	}
	return nil
}

// events counts those about nodes and of the installation: others the suite writes
// none.
func (s Sweep) events(ctx context.Context, f *removal.Facts) error {
	for _, namespace := range []string{metav1.NamespaceDefault, s.Namespace} {
		err := kube.Each(ctx, "", s.Cluster.Clientset.CoreV1().Events(namespace).List, func(e *corev1.Event) {
			if removal.ProjectEvent(*e) {
				f.Events++
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s Sweep) definitions(ctx context.Context, f *removal.Facts) error {
	list, err := s.objects(ctx, removal.Definitions, "")
	if err != nil {
		return err
	}
	for i := range list {
		group, _, _ := unstructured.NestedString(list[i].Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(list[i].Object, "spec", "names", "kind")
		if !removal.ProjectGroup(group, kind) {
			continue
		}
		d := removal.Definition{Kind: kind, Resource: resource(&list[i], group)}
		meta, _, _ := unstructured.NestedMap(list[i].Object, "metadata")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(meta, &d.ObjectMeta); err != nil {
			return fmt.Errorf("reading CRD %s: %w", list[i].GetName(), err)
		}
		if d.Objects, err = s.objects(ctx, d.Resource, ""); err != nil {
			return err
		}
		f.Definitions = append(f.Definitions, d)
	}
	return nil
}

// resource is under which the objects of a definition are served.
func resource(definition *unstructured.Unstructured, group string) schema.GroupVersionResource {
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	out := schema.GroupVersionResource{Group: group, Resource: plural}
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok && m["served"] == true {
			out.Version, _ = m["name"].(string)
		}
	}
	return out
}

// objects are all of a kind, in all namespaces; of one that is not served there are none.
func (s Sweep) objects(ctx context.Context, kind schema.GroupVersionResource, selector string) (out []unstructured.Unstructured, err error) {
	err = kube.Each(ctx, selector, s.Cluster.Dynamic.Resource(kind).List, func(x *unstructured.Unstructured) { out = append(out, *x) })
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind.Resource, err)
	}
	return out, nil
}
