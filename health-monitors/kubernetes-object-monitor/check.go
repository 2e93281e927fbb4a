package kubernetesobjectmonitor

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	connectors "github.com/nvidia/nvsentinel/internal/report"
)

// Exit codes.
const (
	exitFine   = 0
	exitErrors = 1 // an expression could not be evaluated
	exitUsage  = 2 // flags, the policy file or an object are wrong, or the API server cannot be asked
)

// streams are what a command line speaks to.
type streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// objects are what lookup() finds: the objects that were given.
type objects []unstructured.Unstructured

// Find is the given object of that name, or nil.
func (o objects) Find(kind schema.GroupVersionKind, namespace, name string) (map[string]any, error) {
	for i := range o {
		if o[i].GroupVersionKind() == kind && o[i].GetNamespace() == namespace && o[i].GetName() == name {
			return o[i].Object, nil
		}
	}
	return nil, nil
}

// runCheck is the subcommand check: it prints the result of every policy for every object
// of its kind, and returns the exit code.
func runCheck(args []string, s streams, now time.Time) int {
	flags := flag.NewFlagSet("kubernetes-object-monitor check", flag.ContinueOnError)
	flags.SetOutput(s.Err)
	path := flags.String("policy-config-path", defaultConfig.Policies, "File with the policies.")
	publishers := flags.String("publishers-config-path", "", "Configuration file of the connectors. Check names that its [[publishers.agent]] entries assign to other agents are rejected. Empty uses the built-in entries.")
	clock := flags.String("now", now.UTC().Format(time.RFC3339), "Time of the evaluation, in RFC 3339 format.")
	flags.Usage = func() {
		fmt.Fprintln(s.Err, "kubernetes-object-monitor check [flags] [object.yaml ...]\nEvaluates every policy against the objects of its kind and prints the results. Without files, reads the objects from standard input.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitFine
	} else if err != nil {
		return exitUsage
	}
	fail := func(err error) int {
		fmt.Fprintln(s.Err, "kubernetes-object-monitor check:", err)
		return exitUsage
	}
	at, err := time.Parse(time.RFC3339, *clock)
	if err != nil {
		return fail(fmt.Errorf("flag --now: %w", err))
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return fail(fmt.Errorf("reading the policies: %w", err))
	}
	given, err := read(flags.Args(), s.In)
	if err != nil {
		return fail(err)
	}
	for i := range given {
		given[i].Object = policy.Normal(given[i].GroupVersionKind(), given[i].Object)
	}
	names, err := connectors.ReadNames(*publishers)
	if err != nil {
		return fail(err)
	}
	set, err := policy.Parse(*path, string(text), given, names.Of(machine.Agent))
	if err != nil {
		return fail(err)
	}
	return printAnswers(set, given, at, s.Out)
}

// read decodes the files, or the input if there are none.
func read(files []string, in io.Reader) (objects, error) {
	if len(files) == 0 {
		return decode("input", in)
	}
	var out objects
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading objects: %w", err)
		}
		some, err := decode(name, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// decode reads YAML documents or JSON; lists are unfolded.
func decode(name string, in io.Reader) (objects, error) {
	var out objects
	decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(in), 4096)
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("reading objects from %s: %w", name, err)
		case object.Object == nil:
		case object.IsList():
			if err := object.EachListItem(out.take); err != nil {
				return nil, fmt.Errorf("reading objects from %s: %w", name, err)
			}
		case object.GetKind() == "" || object.GetName() == "":
			return nil, fmt.Errorf("reading objects from %s: an object has no kind or no name, set both", name)
		default:
			out = append(out, object)
		}
	}
}

// take adds an item of a list.
func (o *objects) take(item runtime.Object) error {
	object, ok := item.(*unstructured.Unstructured)
	if !ok || object.GetKind() == "" || object.GetName() == "" {
		return fmt.Errorf("an item of a list has no kind or no name, set both")
	}
	*o = append(*o, *object)
	return nil
}

// printAnswers prints the answers and returns the exit code.
func printAnswers(set *policy.Set, given objects, at time.Time, out io.Writer) int {
	code := exitFine
	for _, p := range set.Policies {
		fmt.Fprintf(out, "policy %s (%s %s)\n", p.Name, p.Kind.GroupVersion(), p.Kind.Kind)
		for _, doubt := range p.Warnings(record.Process) {
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
			fmt.Fprintln(out, "  no object of this kind given")
		}
	}
	for _, name := range set.Disabled {
		fmt.Fprintf(out, "policy %s is disabled\n", name)
	}
	return code
}

// one prints the answer about one object; false means that there is none.
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
		fmt.Fprintf(out, "  %s: match%s, but the node is unknown: %v\n", name, later, err)
		return false
	}
	fmt.Fprintf(out, "  %s: match on node %s%s\n", name, node, later)
	return printEvents(p, name, node, at, out)
}

// printEvents prints what would be sent.
func printEvents(p *policy.Policy, name, node string, at time.Time, out io.Writer) bool {
	tracker := machine.New("check")
	r := p.Report
	_, err := tracker.Observe(machine.EvaluationResult{
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
