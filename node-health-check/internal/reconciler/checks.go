package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// rawCheck is a NodeHealthCheck that is not decoded.
func rawCheck() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	return o
}

// rawChecks is a list of them.
func rawChecks() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind + "List"))
	return l
}

// decode reads a check from its stored form. The definition of the kind may be somebody
// else's, with fewer rules than ours, or may have had fewer when the object was stored.
// The error names the field.
func decode(raw *unstructured.Unstructured) (*v1alpha1.NodeHealthCheck, error) {
	check := &v1alpha1.NodeHealthCheck{}
	err := convert(raw.Object, check)
	if err == nil {
		return check, nil
	}
	if field, why := culprit(raw.Object); why != nil {
		return nil, fmt.Errorf("%s: %w", field, why)
	}
	return nil, err
}

func convert(from map[string]any, to *v1alpha1.NodeHealthCheck) error {
	text, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("encoding the object: %w", err)
	}
	return json.Unmarshal(text, to) //nolint:wrapcheck // the caller names the field
}

// culprit is the first field that can not be decoded, and why.
func culprit(object map[string]any) (string, error) {
	for _, section := range []string{"spec", "status"} {
		fields, _ := object[section].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			field := section + "." + key
			try := func(value any) error {
				return convert(map[string]any{section: map[string]any{key: value}}, &v1alpha1.NodeHealthCheck{})
			}
			list, _ := fields[key].([]any)
			for i, element := range list {
				if err := try([]any{element}); err != nil {
					return fmt.Sprintf("%s[%d]", field, i), err
				}
			}
			if err := try(fields[key]); err != nil {
				return field, err
			}
		}
	}
	return "", nil
}

// apart is a cache of which NodeHealthChecks are decoded one by one: one that can not be
// decoded is left out of a list, and hides no other. Its pass reports it.
type apart struct {
	client.Reader

	mu   sync.Mutex
	read map[types.UID]*v1alpha1.NodeHealthCheck // as they were last decoded; nil could not be
	at   map[types.UID]string                    // and their resourceVersions
}

// List implements client.Reader. The elements of a list of checks are shared: nobody
// writes into them.
func (a *apart) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	checks, is := list.(*v1alpha1.NodeHealthCheckList)
	if !is {
		return a.Reader.List(ctx, list, options...) //nolint:wrapcheck // it is the cache's
	}
	raw := rawChecks()
	if err := a.Reader.List(ctx, raw, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return err //nolint:wrapcheck // it is the cache's
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	read, at := make(map[types.UID]*v1alpha1.NodeHealthCheck, len(raw.Items)), make(map[types.UID]string, len(raw.Items))
	for i := range raw.Items {
		o := &raw.Items[i]
		check, known := a.read[o.GetUID()]
		if !known || a.at[o.GetUID()] != o.GetResourceVersion() {
			check, _ = decode(o) // its own pass reports why it can not be decoded
		}
		read[o.GetUID()], at[o.GetUID()] = check, o.GetResourceVersion()
		if check != nil {
			checks.Items = append(checks.Items, *check)
		}
	}
	a.read, a.at = read, at
	return nil
}

// rawReferences are the templates of a check that is not decoded.
func rawReferences(raw *unstructured.Unstructured) []v1alpha1.TemplateReference {
	spec, _ := raw.Object["spec"].(map[string]any)
	all := []any{spec["remediationTemplate"]}
	steps, _ := spec["escalatingRemediations"].([]any)
	for _, step := range steps {
		if fields, ok := step.(map[string]any); ok {
			all = append(all, fields["remediationTemplate"])
		}
	}
	var out []v1alpha1.TemplateReference
	for _, one := range all {
		if fields, ok := one.(map[string]any); ok {
			text := func(key string) string { s, _ := fields[key].(string); return s }
			out = append(out, v1alpha1.TemplateReference{
				APIVersion: text("apiVersion"), Kind: text("kind"), Namespace: text("namespace"), Name: text("name"),
			})
		}
	}
	return out
}
