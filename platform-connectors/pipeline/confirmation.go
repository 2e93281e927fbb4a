package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// StageConfirmation stores faults as PERSIST_ONLY until they are confirmed.
const StageConfirmation = "Confirmation"

// What two signals must share.
const (
	// AboutDevice is a device: a name of a GPU, by UUID, PCI address or index.
	AboutDevice = "device"
	// AboutNode is the node alone.
	AboutNode = "node"
)

// Bounds of a rule.
const (
	maxConfirmRules  = 64
	maxConfirmWindow = 24 * time.Hour
	maxReports       = 100
	maxWaitsFor      = 256
)

// Confirmation is the file of the stage Confirmation.
type Confirmation struct {
	// Rules are tried in order; a fault waits by the first that matches it.
	Rules []ConfirmRule `toml:"rules"`
	// Defaults adds DefaultPersistence behind them.
	Defaults bool `toml:"defaults"`
}

// ConfirmRule selects the faults that are not acted upon alone, and defines what confirms
// one: whichever of Second, Reports and StandsFor is met first.
type ConfirmRule struct {
	Name string `toml:"name" json:"name"`
	// When is a CEL expression for the faults that wait; see Rule.When.
	When string `toml:"when" json:"-"`
	// Second is one for the events that confirm them, or empty.
	Second string `toml:"second" json:"-"`
	// Mutual has the events of Second wait, too: for those of When.
	Mutual bool `toml:"mutual" json:"-"`
	// Within is the most time between the two, whichever comes first, and between
	// the first report and the last of Reports.
	Within time.Duration `toml:"within" json:"within"`
	// About is what the two must share, AboutDevice if empty.
	About string `toml:"about" json:"about,omitempty"`
	// Reports is how many events of the same fault confirm it; 0 is no number.
	Reports int `toml:"reports" json:"reports,omitempty"`
	// StandsFor is how long a fault stands without a recovery until it is
	// confirmed; 0 is never.
	StandsFor time.Duration `toml:"standsFor" json:"standsFor,omitempty"`
}

// DefaultPersistence are the rules for checks whose single reports are known to
// pass. Each is named with what its number is from.
func DefaultPersistence() []ConfirmRule {
	stands := func(check string, d time.Duration) ConfirmRule {
		return ConfirmRule{Name: "default-" + check, When: fmt.Sprintf("event.checkName == %q", check), StandsFor: d}
	}
	return []ConfirmRule{
		// DCGM's health check warns of any violation within its window of one
		// minute (dcgm_health_structs: thermal, power and PCIe). What stands for two
		// windows is more than one spike.
		stands("GpuThermalWatch", 2*time.Minute),
		stands("GpuPowerWatch", 2*time.Minute),
		stands("GpuPcieWatch", 2*time.Minute),
		// The margin is one sample of a sensor: the same two minutes.
		stands("GpuThermalMarginWatch", 2*time.Minute),
		// Kubernetes leaves pods of a node that does not answer alone for 300 s
		// (DefaultTolerationSeconds); a host engine that is restarted is back before.
		stands("GpuDcgmConnectivityFailure", 5*time.Minute),
	}
}

// rules are the file's, then the defaults.
func (c Confirmation) rules() []ConfirmRule {
	if !c.Defaults {
		return c.Rules
	}
	return append(slices.Clone(c.Rules), DefaultPersistence()...)
}

func (c Confirmation) validate() error {
	var problems []error
	names := map[string]bool{}
	for i, r := range c.rules() {
		if err := r.validate(); err != nil {
			problems = append(problems, fmt.Errorf("%s: rules[%d] (%q): %w", StageConfirmation, i, r.Name, err))
		}
		if names[r.Name] {
			problems = append(problems, fmt.Errorf("%s: rules[%d]: name %q is a duplicate", StageConfirmation, i, r.Name))
		}
		names[r.Name] = true
	}
	if len(c.Rules) > maxConfirmRules {
		problems = append(problems, fmt.Errorf("%s: %d rules, at most %d are allowed", StageConfirmation, len(c.Rules), maxConfirmRules))
	}
	return errors.Join(problems...)
}

func (r ConfirmRule) validate() error {
	var problems []error
	wrong := func(so bool, format string, args ...any) {
		if so {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	wrong(r.Name == "" || len(r.Name) > admission.MaxName, "name is empty, or longer than %d bytes", admission.MaxName)
	wrong(r.When == "", "when is empty and would match every fault, set it")
	wrong(r.Second == "" && r.Reports == 0 && r.StandsFor == 0, "the rule has no confirmation: set second, reports or standsFor")
	wrong(r.Mutual && r.Second == "", "mutual requires second")
	wrong(r.Reports < 0 || r.Reports == 1 || r.Reports > maxReports, "reports %d is not in the range of 2 to %d", r.Reports, maxReports)
	wrong(r.StandsFor < 0 || r.StandsFor > maxConfirmWindow, "standsFor %s is not in the range of 0s to %s", r.StandsFor, maxConfirmWindow)
	needs := r.Second != "" || r.Reports > 0
	wrong(needs && (r.Within <= 0 || r.Within > maxConfirmWindow), "within %s is not in the range of 0s to %s", r.Within, maxConfirmWindow)
	wrong(!needs && r.Within != 0, "within requires second or reports")
	wrong(r.About != "" && r.About != AboutDevice && r.About != AboutNode, "about %q is not %s or %s", r.About, AboutDevice, AboutNode)
	return errors.Join(problems...)
}

// mirrored is what the events of Second wait for.
func (r ConfirmRule) mirrored() ConfirmRule {
	return ConfirmRule{Name: r.Name, When: r.Second, Second: r.When, Within: r.Within, About: r.About}
}

// Lasts is how long a fault waits, and is remembered when it was confirmed.
func (r ConfirmRule) Lasts() time.Duration { return max(r.Within, r.StandsFor) }

// WaitsFor describes in words what confirms a fault.
func (r ConfirmRule) WaitsFor() string {
	var out string
	or := func(format string, args ...any) {
		if out != "" {
			out += ", or "
		}
		out += fmt.Sprintf(format, args...)
	}
	if r.Second != "" {
		share := "about the same device"
		if r.About == AboutNode {
			share = "about the node"
		}
		second := r.Second
		if len(second) > maxWaitsFor {
			second = second[:maxWaitsFor]
		}
		or("a second signal %s within %s (%s)", share, r.Within, second)
	}
	if r.Reports > 0 {
		or("%d reports of the fault within %s", r.Reports, r.Within)
	}
	if r.StandsFor > 0 {
		or("the fault to stay open for %s", r.StandsFor)
	}
	return out
}

// confirmable is a compiled ConfirmRule; second is nil without one.
type confirmable struct {
	ConfirmRule
	when, second *compiled
}

func compileConfirmation(env *cel.Env, c Confirmation) (out []confirmable, problem error) {
	var problems []error
	one := func(rule, key, expression string) *compiled {
		program, err := compile(env, expression)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: rule %q.%s: %w", StageConfirmation, rule, key, err))
		}
		return &compiled{Rule{Name: rule}, program}
	}
	for _, r := range c.rules() {
		rule := confirmable{ConfirmRule: r, when: one(r.Name, "when", r.When)}
		if r.Second != "" {
			rule.second = one(r.Name, "second", r.Second)
		}
		out = append(out, rule)
	}
	return out, errors.Join(problems...)
}

// applyConfirmation makes a fault PERSIST_ONLY if a rule wants it confirmed, and notes for
// which rules it is the second signal. It leaves out what is for the record only by its
// publisher, or by a rule before; recoveries; events which state that a fault is confirmed;
// and agents whose events do not go through the spool, where nothing would find a second
// signal.
func (p *Pipeline) applyConfirmation(e record.Event, notes *Notes) record.Event {
	if e.IsHealthy || e.ProcessingStrategy != record.Process || e.Confirms() != "" || slices.Contains(p.config.ClusterWide, e.Agent) {
		return e
	}
	inputs := inputs(e)
	held, waits := e, false
	for _, r := range p.confirm {
		if r.second != nil {
			one, all := r.second.match(inputs, notes)
			if one {
				notes.SecondOf = append(notes.SecondOf, r.Name)
			}
			if all && r.Mutual && !waits {
				held = Unconfirmed(e, r.mirrored())
			}
		}
		if waits {
			continue
		}
		if _, all := r.when.match(inputs, notes); all {
			rule := r.ConfirmRule
			notes.Waits, waits = &rule, true
			held = Unconfirmed(e, rule)
		}
	}
	return held
}

// match reports whether the rule matches one of the codes of an event, and whether it
// matches all of them. An event waits only if all match: a fault of one code is not held
// for another code.
func (r compiled) match(inputs []map[string]any, notes *Notes) (one, all bool) {
	all = true
	for _, input := range inputs {
		matched, err := r.matches(input)
		if err != nil {
			notes.Failed = append(notes.Failed, RuleError{r.Name, err})
			return false, false
		}
		one, all = one || matched, all && matched
	}
	return one, all
}

// Unconfirmed is a fault that waits by a rule.
func Unconfirmed(e record.Event, r ConfirmRule) record.Event {
	e.Metadata = annotated(e.Metadata, map[string]string{
		record.MetadataStrategyReason: record.Unconfirmed, record.MetadataUnconfirmedRule: r.Name,
		record.MetadataWaitsFor: r.WaitsFor(), record.MetadataWaitsWithin: r.Lasts().String(),
	})
	e.ProcessingStrategy = record.PersistOnly
	return e
}

// Confirmed is the event that has a waiting one acted upon, under its own id: the
// same fault in everything that decides, its order and boot included, so that what
// ends the one ends the other.
func Confirmed(waiting record.Event, r ConfirmRule, by, how string) (record.Event, error) {
	id, err := record.ConfirmationID(waiting.ID)
	if err != nil {
		return record.Event{}, fmt.Errorf("the id of event %q: %w", waiting.ID, err)
	}
	e := waiting
	e.Metadata = annotated(waiting.Metadata, map[string]string{
		record.MetadataConfirms: waiting.ID, record.MetadataConfirmedBy: by,
		record.MetadataConfirmedRule: r.Name, record.MetadataConfirmedHow: how,
	})
	e.ID = id
	return e, nil
}

// annotated is metadata with notes, which take the place of other entries where there is no
// space, but never of those that state when a fact was seen.
func annotated(metadata, notes map[string]string) map[string]string {
	out := maps.Clone(metadata)
	if out == nil {
		out = map[string]string{}
	}
	others := slices.Sorted(maps.Keys(out))
	maps.Copy(out, notes)
	for i := len(others) - 1; i >= 0 && len(out) > admission.MaxMetadata; i-- {
		if _, note := notes[others[i]]; !note && !slices.Contains(record.OrderKeys, others[i]) {
			delete(out, others[i])
		}
	}
	return out
}
