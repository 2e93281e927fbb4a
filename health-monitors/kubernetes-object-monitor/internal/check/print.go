package check

import (
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
)

// take adds an item of a list.
func (o *objects) take(item runtime.Object) error {
	object, ok := item.(*unstructured.Unstructured)
	if !ok || object.GetKind() == "" || object.GetName() == "" {
		return fmt.Errorf("an item of a list has no kind or no name")
	}
	*o = append(*o, *object)
	return nil
}

// report prints the answers and returns the exit code.
func report(set *policy.Set, given objects, at time.Time, out io.Writer) int {
	code := exitFine
	for _, p := range set.Policies {
		fmt.Fprintf(out, "policy %s (%s %s)\n", p.Name, p.Kind.GroupVersion(), p.Kind.Kind)
		for _, doubt := range p.Doubts(record.Process) {
			fmt.Fprintf(out, "  warning: %s\n", doubt)
		}
		seen := false
		for i := range given {
			object := &given[i]
			if object.GroupVersionKind() != p.Kind || p.Namespace != "" && object.GetNamespace() != p.Namespace {
				continue
			}
			seen = true
			if !one(p, object, at, out) {
				code = exitErrors
			}
		}
		if !seen {
			fmt.Fprintln(out, "  no object of this kind was given")
		}
	}
	for _, name := range set.Disabled {
		fmt.Fprintf(out, "policy %s is disabled\n", name)
	}
	return code
}

// one prints the answer about one object; false says that there is none.
func one(p *policy.Policy, object *unstructured.Unstructured, at time.Time, out io.Writer) bool {
	name := object.GetName()
	if object.GetNamespace() != "" {
		name = object.GetNamespace() + "/" + name
	}
	match, err := p.Match(object.Object, at, nil)
	if err != nil {
		fmt.Fprintf(out, "  %s: error: %v\n", name, err)
		return false
	}
	later := ""
	if !match.Flip.IsZero() {
		later = ", evaluated again at " + match.Flip.UTC().Format(time.RFC3339)
	}
	if !match.Matched {
		fmt.Fprintf(out, "  %s: no match%s\n", name, later)
		return true
	}
	node, err := p.Node(object.Object, at, nil)
	if err != nil {
		fmt.Fprintf(out, "  %s: match%s, but the node is not known: %v\n", name, later, err)
		return false
	}
	fmt.Fprintf(out, "  %s: match on node %s%s\n", name, node, later)
	return events(p, name, node, at, out)
}

// events prints what would be sent.
func events(p *policy.Policy, name, node string, at time.Time, out io.Writer) bool {
	tracker := machine.New("check")
	r := p.Report
	_, err := tracker.Observe(machine.Seen{
		Key: machine.Key{Policy: p.Name, Type: p.Kind.GroupVersion().String() + "/" + p.Kind.Kind, Object: name}, Observation: machine.Matched, At: at,
		Fault:   machine.Fault{Node: node, ComponentClass: r.ComponentClass, Codes: r.Codes, Strategy: r.StrategyOr(record.Process)},
		Wording: machine.Wording{IsFatal: r.IsFatal, Message: r.Message, Action: r.Action, CustomAction: r.CustomAction, Quarantine: r.Quarantine, Drain: r.Drain},
	}, func() (string, error) { return "", nil })
	if err != nil {
		fmt.Fprintf(out, "    error: %v\n", err)
		return false
	}
	for _, w := range tracker.Waiting() {
		w.Event.Metadata = nil // given when it is sent
		text, err := protojson.Marshal(w.Event)
		if err != nil {
			fmt.Fprintf(out, "    error: %v\n", err)
			return false
		}
		fmt.Fprintf(out, "    event %s\n", text)
	}
	return true
}
