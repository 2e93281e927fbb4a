package reconciler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// references are the templates of a check.
func references(check *v1alpha1.NodeHealthCheck) []v1alpha1.TemplateReference {
	var out []v1alpha1.TemplateReference
	if one := check.Spec.RemediationTemplate; one != nil {
		out = append(out, *one)
	}
	for _, step := range check.Spec.EscalatingRemediations {
		out = append(out, step.RemediationTemplate)
	}
	return out
}

// templateKind is the kind of a template.
func templateKind(ref v1alpha1.TemplateReference) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}

// remediationKind is the kind of the remediations of a template; empty if its own
// does not end in Template.
func remediationKind(ref v1alpha1.TemplateReference) schema.GroupVersionKind {
	kind := templateKind(ref)
	name, is := strings.CutSuffix(kind.Kind, v1alpha1.TemplateSuffix)
	if !is || name == "" {
		return schema.GroupVersionKind{}
	}
	return kind.GroupVersion().WithKind(name)
}

// steps reads the templates of a check. Those that cannot be used are a problem of
// the whole check.
func (c *Reconciler) steps(ctx context.Context, o *observation) error {
	spec := &o.Check.Spec
	if (spec.RemediationTemplate != nil) == (len(spec.EscalatingRemediations) > 0) {
		o.Problem = &triage.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: "exactly one of spec.remediationTemplate and spec.escalatingRemediations must be set"}
		return nil
	}
	wanted := slices.SortedStableFunc(slices.Values(spec.EscalatingRemediations), func(a, b v1alpha1.EscalatingRemediation) int {
		return cmp.Compare(a.Order, b.Order)
	})
	if spec.RemediationTemplate != nil {
		wanted = []v1alpha1.EscalatingRemediation{{RemediationTemplate: *spec.RemediationTemplate}}
	}
	for _, one := range wanted {
		step, problem, err := c.step(ctx, one.RemediationTemplate)
		if err != nil {
			return err
		}
		if problem != nil {
			o.Problem = problem
			continue
		}
		step.Timeout = one.Timeout.Duration
		o.Steps = append(o.Steps, step)
	}
	if o.Problem == nil {
		o.Problem = ambiguous(o.Steps)
	}
	// Another definition of the kind may have let the field in. Without its meaning
	// remediations would begin sooner than was asked for.
	if o.Problem == nil && spec.StormCooldownDuration != "" {
		o.Problem = &triage.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: "spec.stormCooldownDuration is not supported: " +
			"remove it, and set spec.stormRecoveryThreshold, the number of unhealthy nodes at which a storm ends"}
	}
	return nil
}

// step reads one template.
func (c *Reconciler) step(ctx context.Context, ref v1alpha1.TemplateReference) (triage.Step, *triage.Problem, error) {
	kind := remediationKind(ref)
	if kind.Kind == "" {
		return triage.Step{}, invalid(ref, "its kind must end in Template, after the kind of the remediations"), nil
	}
	for _, needed := range []schema.GroupVersionKind{templateKind(ref), kind} {
		namespaced, err := c.kinds.namespaced(needed)
		switch {
		case isNoKind(err):
			return triage.Step{}, missing(ref, fmt.Sprintf("the API server does not serve %s of %s", needed.Kind, needed.GroupVersion())), nil
		case err != nil:
			return triage.Step{}, nil, err
		case namespaced && ref.Namespace == "":
			return triage.Step{}, missing(ref, "no namespace is set, but "+needed.Kind+" objects are namespaced"), nil
		case !namespaced:
			ref.Namespace = ""
		}
	}
	if err := c.kinds.follow(ctx, templateKind(ref), true); lasting(err) {
		return triage.Step{}, missing(ref, err.Error()), nil
	} else if err != nil {
		return triage.Step{}, nil, err
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(templateKind(ref))
	err := c.cached.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, o)
	if apierrors.IsNotFound(err) {
		return triage.Step{}, missing(ref, "it does not exist"), nil
	} else if err != nil {
		return triage.Step{}, nil, fmt.Errorf("reading template %s %s: %w", ref.Kind, ref.Name, err)
	}
	spec, found, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec") // not found if it is no object
	if !found {
		return triage.Step{}, invalid(ref, "spec.template.spec is missing"), nil
	}
	_, multiple := o.GetAnnotations()[v1alpha1.MultipleTemplatesAnnotation]
	return triage.Step{Template: ref.Object(), Kind: kind, Spec: spec, Multiple: multiple}, nil, nil
}

func missing(ref v1alpha1.TemplateReference, why string) *triage.Problem {
	return &triage.Problem{Reason: v1alpha1.ReasonTemplateNotFound, Message: describe(ref) + ": " + why, Retry: true}
}

func invalid(ref v1alpha1.TemplateReference, why string) *triage.Problem {
	return &triage.Problem{Reason: v1alpha1.ReasonTemplateInvalid, Message: describe(ref) + ": " + why}
}

func describe(ref v1alpha1.TemplateReference) string {
	if ref.Namespace == "" {
		return fmt.Sprintf("template %s %s", ref.Kind, ref.Name)
	}
	return fmt.Sprintf("template %s %s/%s", ref.Kind, ref.Namespace, ref.Name)
}

// ambiguous is the problem of two steps of one kind whose remediations would have one
// name: their remediator has to state that it supports several.
func ambiguous(steps []triage.Step) *triage.Problem {
	for i, a := range steps {
		for _, b := range steps[i+1:] {
			if a.Kind == b.Kind && (!a.Multiple || !b.Multiple) {
				return &triage.Problem{Reason: v1alpha1.ReasonTemplateInvalid, Message: fmt.Sprintf(
					"templates %s and %s are both of kind %s, whose remediator does not declare support for several templates (annotation %s)",
					a.Template.Name, b.Template.Name, a.Template.Kind, v1alpha1.MultipleTemplatesAnnotation)}
			}
		}
	}
	return nil
}
