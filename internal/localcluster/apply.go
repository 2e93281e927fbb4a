package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

const (
	fieldManager = "local-cluster"
	// kindLimit is how long an object waits for its kind, which a definition applied right before
	// makes available a moment later.
	kindLimit  = 3 * time.Minute
	yamlBuffer = 4 << 10
)

// Apply creates or updates every object of a stream of YAML documents, in its order. Objects of a
// namespaced kind without a namespace go to "default". The kinds of a definition are served when
// Apply returns.
func (c *Cluster) Apply(ctx context.Context, manifests io.Reader) error {
	objects, err := decode(manifests)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := c.applyObject(ctx, object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := c.await(ctx, kindLimit, func(ctx context.Context) error { return c.served(ctx, object) }); err != nil {
			return fmt.Errorf("waiting for the kind of %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// served asks for the objects of a definition, in every version of it that is to be served.
func (c *Cluster) served(ctx context.Context, definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		mapping, err := c.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, fmt.Sprint(version["name"]))
		if err == nil {
			_, err = c.dynamic.Resource(mapping.Resource).List(ctx, metav1.ListOptions{Limit: 1})
		}
		if err != nil {
			c.mapper.Reset()
			return err
		}
	}
	return nil
}

// decode reads the documents of a stream; lists are opened.
func decode(manifests io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(manifests, yamlBuffer)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if !object.IsList() {
			objects = append(objects, object)
			continue
		}
		list, err := object.ToList()
		if err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
}

// applyObject applies one object, waiting for its kind to be served.
func (c *Cluster) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	var refused error
	err := c.await(ctx, kindLimit, func(ctx context.Context) error {
		err := c.applyOnce(ctx, object)
		if err != nil && kindMissing(err) {
			c.mapper.Reset()
			return err
		}
		refused = err
		return nil
	})
	return errors.Join(err, refused)
}

func (c *Cluster) applyOnce(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("finding the resource of %s: %w", kind, err)
	}
	var resources dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		resources = c.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	_, err = resources.Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// kindMissing distinguishes a kind that is not served yet from an object that is refused.
func kindMissing(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Kind != "namespaces"
}
