package chain

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/cel"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// RunLabel is the run's name on every object that the run makes.
const RunLabel = "nvsentinel.dgxc.nvidia.com/repair-run"

// maxObject is how many bytes of JSON an object has at most: what was written last of
// each step is kept in the run.
const maxObject = 16 << 10

// variables are what the expressions of a step see.
func variables(run *v1alpha1.RepairRun) (map[string]any, error) {
	text, err := json.Marshal(run.Spec.Fault)
	if err != nil {
		return nil, fmt.Errorf("encoding the fault: %w", err)
	}
	var fault map[string]any
	if err := utiljson.Unmarshal(text, &fault); err != nil {
		return nil, fmt.Errorf("encoding the fault: %w", err)
	}
	outputs, steps, messages := map[string]any{}, map[string]string{}, map[string]string{}
	for _, s := range run.Status.Steps {
		steps[s.Name] = string(s.State)
		if !s.FinishedAt.IsZero() {
			messages[s.Name] = reasonText(s)
		}
		read := map[string]any{}
		for _, o := range s.Outputs {
			var value any
			if err := utiljson.Unmarshal([]byte(o.Value), &value); err != nil {
				return nil, fmt.Errorf("reading output %s of step %s: %w", o.Name, s.Name, err)
			}
			read[o.Name] = value
		}
		if len(read) > 0 {
			outputs[s.Name] = read
		}
	}
	return map[string]any{
		"fault": fault, "action": run.Spec.Fault.Action, "node": v1alpha1.NodeOf(run), "outputs": outputs, "steps": steps, "messages": messages,
	}, nil
}

// due reports whether a step's condition holds.
func (s Step) due(vars map[string]any) (bool, error) {
	if s.when == nil {
		return true, nil
	}
	yes, err := truth(s.when, vars)
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	return yes, nil
}

// truth is the value of an expression that can only be true or false.
func truth(p cel.Program, vars map[string]any) (bool, error) {
	v, _, err := p.Eval(vars)
	if err != nil {
		return false, err
	}
	yes, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("is %v, not true or false", v.Value())
	}
	return yes, nil
}

// values are a step's inputs.
func (s Step) values(vars map[string]any) (map[string]any, error) {
	out := map[string]any{}
	var problems []error
	for i, in := range s.Inputs {
		v, err := value(s.inputs[i], vars)
		if err != nil {
			problems = append(problems, fmt.Errorf("input %s: %w", in.Name, err))
		}
		out[in.Name] = v
	}
	return out, errors.Join(problems...)
}

// value is what an expression gives, as JSON has it.
func value(p cel.Program, vars map[string]any) (any, error) {
	v, _, err := p.Eval(vars)
	if err != nil {
		return nil, err
	}
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(native.(*structpb.Value))
	if err != nil {
		return nil, err
	}
	var out any
	return out, utiljson.Unmarshal(text, &out)
}

// data is what a template finds; the names are those of the repairs in files.
type data struct {
	Name                  string
	NodeName              string
	HealthEventID         string
	HealthEvent           v1alpha1.Fault
	RecommendedAction     int32
	RecommendedActionName string
	ApiGroup              string //nolint:revive // templates of others name it so
	Version               string
	Kind                  string
	Namespace             string
	Session               string
	Run                   string
	Step                  string
	Inputs                map[string]any
}

// renderError is one of the texts of a template.
type renderError struct{ error }

// Unwrap is the text's own.
func (e *renderError) Unwrap() error { return e.error }

// Render makes the object of a step, of these inputs. Name, namespace, labels and owner are
// set here, whatever the template has; an object for another node is refused.
func (t *Template) Render(run *v1alpha1.RepairRun, step string, inputs map[string]any) (artifact.Definition, error) {
	f, node := run.Spec.Fault, v1alpha1.NodeOf(run)
	made, err := t.object.Render(data{
		Name: ObjectName(run, step), NodeName: node, HealthEventID: f.Record, HealthEvent: f,
		RecommendedAction: int32(record.ActionNumber(record.Action(f.Action))), RecommendedActionName: f.Action,
		ApiGroup: t.GVK.Group, Version: t.GVK.Version, Kind: t.GVK.Kind, Namespace: t.Namespace,
		Session: f.Session, Run: run.Name, Step: step, Inputs: inputs,
	})
	if err != nil {
		return artifact.Definition{}, fmt.Errorf("template %s: %w", t.Name, &renderError{err})
	}
	o := &unstructured.Unstructured{Object: made}
	if other := foreign(made, node); other != "" {
		return artifact.Definition{}, fmt.Errorf("template %s: renders an object for node %q, the run is for %q", t.Name, other, node)
	}
	if got := o.GroupVersionKind(); got != t.GVK {
		return artifact.Definition{}, fmt.Errorf("template %s: renders a %s, not a %s", t.Name, got, t.GVK)
	}
	t.own(o, run, step)
	d, err := artifact.Define(o, SlotID(run, step), inputs)
	if err == nil && len(d.Submitted) > maxObject {
		err = fmt.Errorf("renders an object of %d bytes, the limit is %d", len(d.Submitted), maxObject)
	}
	if err != nil {
		return artifact.Definition{}, fmt.Errorf("template %s: %w", t.Name, err)
	}
	return d, nil
}

func (t *Template) own(o *unstructured.Unstructured, run *v1alpha1.RepairRun, step string) {
	remediation.Identity{
		Name: ObjectName(run, step), Namespace: t.Namespace,
		Owners: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.RunKind, Name: run.Name, UID: run.UID}},
		Labels: map[string]string{RunLabel: run.Name},
		Annotations: map[string]string{
			remediation.NodeAnnotation: v1alpha1.NodeOf(run), remediation.RecordAnnotation: run.Spec.Fault.Record, nodemark.SessionAnnotation: run.Spec.Fault.Session,
		},
	}.Own(o)
	o.SetFinalizers(nil)
}

// foreign is another node's name under the key nodeName, anywhere in an object; empty
// is none.
func foreign(v any, node string) string {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if name, ok := inner.(string); ok && key == "nodeName" && name != node {
				return name
			}
			if other := foreign(inner, node); other != "" {
				return other
			}
		}
	case []any:
		for _, inner := range v {
			if other := foreign(inner, node); other != "" {
				return other
			}
		}
	}
	return ""
}

// SlotID identifies the step of a run that an object is for.
func SlotID(run *v1alpha1.RepairRun, step string) string { return string(run.UID) + "/" + step }

// nameLength is how long the name of an object is at most: a Job's is a label of its
// pods.
const nameLength = 63

// ObjectName is the name of a step's object: the same facts give the same name, so that
// it can't be made twice.
func ObjectName(run *v1alpha1.RepairRun, step string) string {
	digest, _ := artifact.Digest(SlotID(run, step))
	end := "-" + digest[len("sha256:"):][:8]
	node := v1alpha1.NodeOf(run)
	name := trim(node[:min(len(node), nameLength-len(end))])
	return name + end
}

// trim cuts what a name can't end with.
func trim(name string) string {
	for len(name) > 0 && (name[len(name)-1] == '.' || name[len(name)-1] == '-') {
		name = name[:len(name)-1]
	}
	return name
}
