package action

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// Scopes of a repair kind; empty is Cluster.
const (
	ScopeCluster    = "Cluster"
	ScopeNamespaced = "Namespaced"
)

// Defaults of an action's policy.
const (
	// DefaultUnknownTimeout is the janitor's own time limit and ten minutes.
	DefaultUnknownTimeout = 40 * time.Minute
	DefaultMaxAttempts    = 2
	DefaultWindow         = 24 * time.Hour
	DefaultBackoff        = time.Minute
	// DefaultChainTimeout is that of runs: each step has a time of its own.
	DefaultChainTimeout = 24 * time.Hour
)

// Templates is where templates are read from.
type Templates struct {
	// MountPath is the directory of template files.
	MountPath string `toml:"mountPath"`
	// FileName is the template of actions that name none.
	FileName string `toml:"fileName"`
}

// Attempts bounds the repairs of one machine by one equivalence group.
type Attempts struct {
	// Max is how many objects may be created within Window.
	Max int `toml:"max" bounds:"at least 1"`
	// Window is rolling and goes across sessions.
	Window time.Duration `toml:"window" bounds:"above 0s"`
}

// Config is one table [remediationActions."NAME"].
type Config struct {
	// APIGroup, Version and Kind are those of the repair objects.
	APIGroup string `toml:"apiGroup"`
	Version  string `toml:"version"`
	Kind     string `toml:"kind"`
	// Resource is the plural; empty is guessed from Kind.
	Resource string `toml:"resource"`
	// Scope is Cluster (default) or Namespaced.
	Scope string `toml:"scope"`
	// Namespace of the objects; Namespaced needs one.
	Namespace string `toml:"namespace"`
	// TemplateFileName is a file below the templates' mountPath.
	TemplateFileName string `toml:"templateFileName"`
	// Template is the template itself, instead of a file.
	Template string `toml:"template"`
	// Chain is a RepairChain's name: the repair is a run of it, in place of an object
	// of a kind that is named here.
	Chain string `toml:"chain"`
	// EquivalenceGroup joins actions that cure by the same means.
	EquivalenceGroup string `toml:"equivalenceGroup"`
	// CompleteConditionType is short for a rule on one condition.
	CompleteConditionType string `toml:"completeConditionType"`
	// HealthRule evaluates from the object whether the remediation succeeded.
	HealthRule *healthrule.Rule `toml:"healthRule"`
	// UnknownTimeout is the time that an object may stay without a result. "0s"
	// disables the limit (manual mode).
	UnknownTimeout *time.Duration `toml:"unknownTimeout" bounds:"at least 0s"`
	// Attempts bound the objects that are created for one machine.
	Attempts *Attempts `toml:"attempts"`
	// Backoff is the pause after a failed repair; it doubles up to an hour.
	Backoff *time.Duration `toml:"backoff" bounds:"at least 0s"`
	// OnFailure is what follows when no attempt is left: "stop" (default) leaves
	// the fault to a person, "escalate NAME" repairs it by another action.
	OnFailure string `toml:"onFailure"`
	// SupersedingEquivalenceGroups are the groups whose repairs cover this
	// action's faults, besides its own; empty is every repair as strong.
	SupersedingEquivalenceGroups []string `toml:"supersedingEquivalenceGroups"`
	// ImpactedEntityScope is GPU_UUID where a repair is of one GPU and not of the
	// machine: each GPU then has attempts of its own, and its repair covers the faults
	// of no other.
	ImpactedEntityScope string `toml:"impactedEntityScope"`
	// Rank orders actions by strength; required for names that have none of
	// their own (COMPONENT_RESET 1, RESTART_VM and RESTART_BM 2, REPLACE_VM 3).
	Rank *int `toml:"rank"`
}

// Configs are the actions of a configuration file by name.
type Configs map[string]Config

const (
	janitorGroup   = "janitor.dgxc.nvidia.com"
	janitorVersion = "v1alpha1"
	defaultReboot  = "embedded:rebootnode.yaml"
	defaultReplace = "embedded:terminatenode.yaml"

	chainGroup    = "nvsentinel.dgxc.nvidia.com"
	chainTemplate = "embedded:repairrun.yaml"
)

// Default is the mapping without a configuration file: the restart group
// reboots, REPLACE_VM gives the machine back, all else needs a person.
func Default() Configs {
	reboot := Config{
		APIGroup: janitorGroup, Version: janitorVersion, Kind: "RebootNode", Scope: ScopeCluster,
		TemplateFileName: defaultReboot, EquivalenceGroup: "restart",
		HealthRule: endsIn("NodeReady"),
	}
	replace := Config{
		APIGroup: janitorGroup, Version: janitorVersion, Kind: "TerminateNode", Scope: ScopeCluster,
		TemplateFileName: defaultReplace, EquivalenceGroup: "terminate",
		HealthRule: endsIn("NodeTerminated"),
	}
	return Configs{
		string(record.ActionComponentReset): reboot,
		string(record.ActionRestartVM):      reboot,
		string(record.ActionRestartBM):      reboot,
		string(record.ActionReplaceVM):      replace,
	}
}

// endsIn is the rule of the janitor's kinds: a refused signal is a failure too,
// since the other condition then stays Unknown for ever.
func endsIn(condition string) *healthrule.Rule {
	rule := healthrule.Conditions(
		[]healthrule.ConditionMatcher{{Type: condition, Status: "True"}},
		[]healthrule.ConditionMatcher{{Type: "SignalSent", Status: "False"}, {Type: condition, Status: "False"}},
	)
	return &rule
}

// Compile turns the configured actions into a policy, joining every problem
// with its key. Files are read by read, which gets the file's name.
func Compile(configs Configs, templates Templates, read func(name string) ([]byte, error)) (Policy, error) {
	p := Policy{actions: map[record.Action]Action{}}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		a, err := compile(name, configs[name], templates, read)
		if err != nil {
			problems = append(problems, fmt.Errorf("remediationActions.%q: %w", name, err))
			continue
		}
		if _, twice := p.actions[a.Name]; twice {
			problems = append(problems, fmt.Errorf("remediationActions.%q: %s is a duplicate", name, a.Name))
		}
		p.actions[a.Name] = a
	}
	return p, errors.Join(append(problems, p.checkLinks()...)...)
}

func compile(name string, c Config, templates Templates, read func(string) ([]byte, error)) (Action, error) {
	c, err := c.chained()
	if err != nil {
		return Action{}, err
	}
	a := Action{
		Name: actionName(name), Group: c.EquivalenceGroup, Namespace: c.Namespace, Chain: c.Chain,
		UnknownTimeout: valueOr(c.UnknownTimeout, DefaultUnknownTimeout),
		Attempts:       valueOr(c.Attempts, Attempts{DefaultMaxAttempts, DefaultWindow}),
		Backoff:        valueOr(c.Backoff, DefaultBackoff),
		SupersededBy:   c.SupersedingEquivalenceGroups,
		EntityScope:    c.ImpactedEntityScope,
	}
	problems := c.validate(a)
	a.GVK.Group, a.GVK.Version, a.GVK.Kind, a.Resource = c.APIGroup, c.Version, c.Kind, c.resource()
	if a.Rule, err = healthrule.Resolve(c.HealthRule, c.CompleteConditionType); err != nil {
		problems = append(problems, fmt.Errorf("healthRule: %w", err))
	}
	if a.Rank, err = rankOf(a.Name, c.Rank); err != nil {
		problems = append(problems, err)
	}
	if err := a.checkScope(); err != nil {
		problems = append(problems, err)
	}
	if a.Escalate, err = onFailure(c.OnFailure); err != nil {
		problems = append(problems, err)
	}
	if err := a.load(c, templates, read); err != nil {
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		if err := a.tryTemplate(); err != nil {
			problems = append(problems, err)
		}
	}
	return a, errors.Join(problems...)
}

// chained is the configuration of an action that names a chain: a run of it is the
// object, and its outcome the run's.
func (c Config) chained() (Config, error) {
	if c.Chain == "" {
		return c, nil
	}
	for key, given := range map[string]bool{
		"apiGroup": c.APIGroup != "", "version": c.Version != "", "kind": c.Kind != "", "resource": c.Resource != "", "scope": c.Scope != "",
		"namespace": c.Namespace != "", "template": c.Template != "", "templateFileName": c.TemplateFileName != "",
		"completeConditionType": c.CompleteConditionType != "", "healthRule": c.HealthRule != nil,
	} {
		if given {
			return c, fmt.Errorf("chain: replaces the object, remove %s", key)
		}
	}
	c.APIGroup, c.Version, c.Kind, c.TemplateFileName, c.CompleteConditionType = chainGroup, janitorVersion, RunKind, chainTemplate, "Succeeded"
	if c.UnknownTimeout == nil {
		c.UnknownTimeout = new(DefaultChainTimeout)
	}
	return c, nil
}

func (c Config) validate(a Action) []error {
	var problems []error
	for key, value := range map[string]string{"version": c.Version, "kind": c.Kind, "equivalenceGroup": c.EquivalenceGroup} {
		if value == "" {
			problems = append(problems, fmt.Errorf("%s: is required", key))
		}
	}
	switch c.Scope {
	case "", ScopeCluster:
		if c.Namespace != "" {
			problems = append(problems, errors.New("namespace: must be empty for scope Cluster"))
		}
	case ScopeNamespaced:
		if c.Namespace == "" {
			problems = append(problems, errors.New("namespace: is required for scope Namespaced"))
		}
	default:
		problems = append(problems, fmt.Errorf("scope: %q is not Cluster or Namespaced", c.Scope))
	}
	if a.UnknownTimeout < 0 {
		problems = append(problems, fmt.Errorf("unknownTimeout: %s is negative", a.UnknownTimeout))
	}
	if a.Backoff < 0 {
		problems = append(problems, fmt.Errorf("backoff: %s is negative", a.Backoff))
	}
	if a.Attempts.Max < 1 || a.Attempts.Window <= 0 {
		problems = append(problems, fmt.Errorf("attempts: max %d and window %s must both be above 0", a.Attempts.Max, a.Attempts.Window))
	}
	return problems
}

// actionName accepts REBOOT_NODE for RESTART_VM; other names stand for
// themselves, as wire actions or as custom ones.
func actionName(name string) record.Action {
	if known, err := record.ParseAction(name); err == nil {
		return known
	}
	return record.Action(name)
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
