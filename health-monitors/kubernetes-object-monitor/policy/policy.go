package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Finder is what lookup() asks: a cache of objects, never the API server.
type Finder interface {
	// Find returns the object, nil when it certainly does not exist. An error
	// means that this is not known, for example since the cache is not filled.
	Find(kind schema.GroupVersionKind, namespace, name string) (map[string]any, error)
}

// Report is the content of a policy's events.
type Report struct {
	ComponentClass string
	IsFatal        bool
	Message        string
	Action         record.Action
	// CustomAction names the action when Action is CUSTOM.
	CustomAction string
	// Codes are the error codes; one event is sent for each, one without a code
	// when there is none.
	Codes []string
	// Strategy is empty when the monitor's own holds.
	Strategy          record.Strategy
	Quarantine, Drain *record.Override
}

// StrategyOr is the strategy of the policy's events: its own, or else the
// monitor's.
func (r Report) StrategyOr(monitors record.Strategy) record.Strategy {
	if r.Strategy != "" {
		return r.Strategy
	}
	return monitors
}

// Policy is one compiled policy. It is safe for concurrent use.
type Policy struct {
	Name   string
	Kind   schema.GroupVersionKind
	Report Report
	// Namespace limits the policy to objects of one namespace; empty is all.
	Namespace string

	predicate *program
	node      *program // nil: the object is the Node
}

// Set is the enabled policies of a file.
type Set struct {
	// Policies in the order of the file.
	Policies []*Policy
	// Disabled are the names of the others.
	Disabled []string
	reads    map[schema.GroupVersionKind]*tree
	lookedUp map[schema.GroupVersionKind]bool
}

// Parse reads and compiles a file of policies; file is its name in errors. named are checks
// of a name in addition to that of its form. All problems of all policies, disabled ones
// included, are joined.
func Parse(file, text string, find Finder, named ...func(name string) error) (*Set, error) {
	doc, err := read(file, text)
	if err != nil {
		return nil, err
	}
	env, err := environment(find)
	if err != nil {
		return nil, fmt.Errorf("creating the CEL environment: %w", err)
	}
	set := &Set{reads: map[schema.GroupVersionKind]*tree{}, lookedUp: map[schema.GroupVersionKind]bool{}}
	seen := map[string]bool{}
	var problems []error
	for i, e := range doc.Policies {
		at := fmt.Sprintf("%s: policies[%d] (%q)", file, i, e.Name)
		for _, p := range e.problems() {
			problems = append(problems, fmt.Errorf("%s: %s", at, p))
		}
		if seen[e.Name] {
			problems = append(problems, fmt.Errorf("%s: name is a duplicate", at))
		}
		seen[e.Name] = true
		for _, check := range named {
			if err := check(e.Name); err != nil {
				problems = append(problems, fmt.Errorf("%s: name: %w", at, err))
			}
		}
		if err := set.add(env, e); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", at, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return set, nil
}

// add compiles an entry and, if it is enabled, takes it in.
func (s *Set) add(env *cel.Env, e entry) error {
	p := &Policy{Name: e.Name, Kind: e.kind(), Namespace: e.Resource.Namespace, Report: e.HealthEvent.report()}
	var problems []error
	var err error
	if p.predicate, err = compile(env, e.Predicate.Expression, cel.BoolType); err != nil {
		problems = append(problems, fmt.Errorf("predicate.expression: %w", err))
	}
	if e.NodeAssociation != nil {
		if p.node, err = compile(env, e.NodeAssociation.Expression, cel.StringType); err != nil {
			problems = append(problems, fmt.Errorf("nodeAssociation.expression: %w", err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if e.Enabled == nil || !*e.Enabled {
		s.Disabled = append(s.Disabled, e.Name)
		return nil
	}
	s.Policies = append(s.Policies, p)
	for _, x := range []*program{p.predicate, p.node} {
		s.note(p.Kind, x)
	}
	return nil
}

// note remembers what an expression reads of which kinds.
func (s *Set) note(kind schema.GroupVersionKind, x *program) {
	s.tree(kind)
	if x == nil {
		return
	}
	for _, r := range x.reads {
		if r.lookup {
			s.tree(r.kind).add(r)
			s.lookedUp[r.kind] = true
			continue
		}
		s.tree(kind).add(r)
	}
}

func (s *Set) tree(kind schema.GroupVersionKind) *tree {
	if s.reads[kind] == nil {
		s.reads[kind] = newTree()
	}
	return s.reads[kind]
}

// Kinds are the kinds that the policies watch or look up, sorted.
func (s *Set) Kinds() []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for kind := range s.reads {
		out = append(out, kind)
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// LookedUp reports whether an expression looks up objects of the kind.
func (s *Set) LookedUp(kind schema.GroupVersionKind) bool { return s.lookedUp[kind] }

// Of are the policies about objects of a kind.
func (s *Set) Of(kind schema.GroupVersionKind) []*Policy {
	var out []*Policy
	for _, p := range s.Policies {
		if p.Kind == kind {
			out = append(out, p)
		}
	}
	return out
}

// Namespace is the only namespace of which objects of the kind are needed; empty
// is all.
func (s *Set) Namespace(kind schema.GroupVersionKind) string {
	of := s.Of(kind)
	if s.lookedUp[kind] || len(of) == 0 {
		return ""
	}
	for _, p := range of {
		if p.Namespace != of[0].Namespace {
			return ""
		}
	}
	return of[0].Namespace
}

// Prune returns what the expressions can read of an object, its kind and its name; the
// rest need not be kept in memory. What it returns shares values with the object.
func (s *Set) Prune(kind schema.GroupVersionKind, object map[string]any) map[string]any {
	t := s.reads[kind]
	if t == nil {
		return object
	}
	return t.prune(object)
}

func (h healthEvent) report() Report {
	action, _ := record.ParseAction(h.RecommendedAction) // problems reports the error
	return Report{
		ComponentClass: h.ComponentClass, IsFatal: h.IsFatal, Message: h.Message, Action: action,
		CustomAction: h.CustomRecommendedAction, Codes: h.ErrorCode, Strategy: record.Strategy(h.ProcessingStrategy),
		Quarantine: h.QuarantineOverrides, Drain: h.DrainOverrides,
	}
}

// Rights are what the monitor must be allowed to read in one place.
type Rights struct {
	// Namespace is the place; empty is the whole cluster.
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// Rights are what the enabled policies need: to get, list and watch every kind
// that they watch or look up, in the one namespace that counts if there is one.
// resource is the plural under which the API server serves a kind. Places and
// rules are sorted, the cluster first.
func (s *Set) Rights(resource func(schema.GroupVersionKind) string) []Rights {
	resources := map[string]map[string][]string{} // by namespace and API group
	for _, kind := range s.Kinds() {
		namespace, plural := s.Namespace(kind), resource(kind)
		if resources[namespace] == nil {
			resources[namespace] = map[string][]string{}
		}
		if !slices.Contains(resources[namespace][kind.Group], plural) { // one kind in two versions
			resources[namespace][kind.Group] = append(resources[namespace][kind.Group], plural)
		}
	}
	var out []Rights
	for namespace, groups := range resources {
		r := Rights{Namespace: namespace}
		for group, names := range groups {
			slices.Sort(names)
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: names, Verbs: []string{"get", "list", "watch"}})
		}
		slices.SortFunc(r.Rules, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(a.APIGroups[0], b.APIGroups[0]) })
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Rights) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return out
}
