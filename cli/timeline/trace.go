package timeline

import (
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

// Trace is what runs of repair chains know about one thing: which fault led to which
// object, and that object to which result.
type Trace struct {
	// Query is a digest or the begin of one, an object's name, kind/name or uid, a
	// record's id, a run's name, or a node's.
	Query   string      `json:"query"`
	Runs    []TracedRun `json:"runs"`
	Sources []Source    `json:"sources"`
}

// TracedRun is a run that knows of it.
type TracedRun struct {
	Name    string         `json:"name"`
	Node    string         `json:"node"`
	Chain   string         `json:"chain"`
	Outcome string         `json:"outcome"` // succeeded, failed, misconfigured, unknown or under way
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
	Fault   v1alpha1.Fault `json:"fault"`
	Steps   []TracedStep   `json:"steps"`
}

// TracedStep is one step of it.
type TracedStep struct {
	Name    string                 `json:"name"`
	State   v1alpha1.StepState     `json:"state"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	Object  *v1alpha1.ObjectTrace  `json:"object,omitempty"`
	Began   time.Time              `json:"began,omitzero"`
	Ended   time.Time              `json:"ended,omitzero"`
	Inputs  []TracedInput          `json:"inputs,omitempty"`
	Outputs []v1alpha1.OutputTrace `json:"outputs,omitempty"`
	// Found: the query names this step's object.
	Found bool `json:"found,omitempty"`
}

// TracedInput is an input, and the outputs of earlier steps that are the same value.
type TracedInput struct {
	v1alpha1.InputTrace
	From []string `json:"from,omitempty"`
}

// digestBegin is how much of a digest has to be given.
const digestBegin = 8

// isDigest reports whether a query asks for this digest.
func isDigest(query, digest string) bool {
	begin := strings.TrimPrefix(query, "sha256:")
	return len(begin) >= digestBegin && strings.HasPrefix(strings.TrimPrefix(digest, "sha256:"), begin)
}

// isObject reports whether a query names this object.
func isObject(query string, o *v1alpha1.ObjectTrace) bool {
	if o == nil {
		return false
	}
	kind, name, both := strings.Cut(query, "/")
	return query == o.Name || o.UID != "" && query == o.UID || both && name == o.Name && (strings.EqualFold(kind, o.Kind) || kind == o.Namespace)
}

// Follow finds the runs that know of what is asked for, the newest first.
func Follow(query string, runs []v1alpha1.RepairRun, sources ...Source) Trace {
	t := Trace{Query: query, Runs: []TracedRun{}, Sources: sources}
	slices.SortStableFunc(runs, func(a, b v1alpha1.RepairRun) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for i := range runs {
		traced, knows := traceRun(query, &runs[i])
		if knows {
			t.Runs = append(t.Runs, traced)
		}
	}
	return t
}

func traceRun(query string, run *v1alpha1.RepairRun) (out TracedRun, knows bool) {
	out = TracedRun{Name: run.Name, Node: v1alpha1.NodeOf(run), Chain: run.Spec.Chain, Fault: run.Spec.Fault, Outcome: "under way", Steps: []TracedStep{}}
	if c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		out.Reason, out.Message = c.Reason, c.Message
		switch c.Status {
		case metav1.ConditionTrue:
			out.Outcome = "succeeded"
		case metav1.ConditionFalse:
			switch out.Outcome = "failed"; {
			case misconfigured(c):
				out.Outcome = "misconfigured"
			case outcomeUnknown(c):
				out.Outcome = "unknown"
			}
		case metav1.ConditionUnknown:
		}
	}
	knows = query == run.Name || query == v1alpha1.NodeOf(run) || run.Spec.Fault.Record != "" && query == run.Spec.Fault.Record
	for _, s := range run.Status.Steps {
		step := TracedStep{
			Name: s.Name, State: s.State, Reason: s.Reason, Message: s.Message, Object: s.Object,
			Began: s.StartedAt.Time, Ended: s.FinishedAt.Time, Outputs: s.Outputs, Found: isObject(query, s.Object),
		}
		knows = knows || step.Found || s.Object != nil && (isDigest(query, s.Object.DefinitionDigest) || isDigest(query, s.Object.InputDigest))
		for _, in := range s.Inputs {
			step.Inputs = append(step.Inputs, TracedInput{in, sources(out.Steps, in.Digest)})
			knows = knows || isDigest(query, in.Digest)
		}
		for _, o := range s.Outputs {
			knows = knows || isDigest(query, o.Digest)
		}
		out.Steps = append(out.Steps, step)
	}
	return out, knows
}

// sources are the outputs of earlier steps with a digest.
func sources(earlier []TracedStep, digest string) (out []string) {
	for _, s := range earlier {
		for _, o := range s.Outputs {
			if o.Digest == digest {
				out = append(out, s.Name+"."+o.Name)
			}
		}
	}
	return out
}

// Write writes it as text: < is an input, > an output, and * what was asked for.
func (t Trace) Write(w io.Writer, style Style) error {
	p := style.page()
	for i, run := range t.Runs {
		if i > 0 {
			p.line("")
		}
		t.run(p, run)
	}
	if len(t.Runs) == 0 {
		p.line("no repair chain run found for %s", plain(t.Query))
	}
	for _, s := range t.Sources {
		if !s.Complete() {
			p.line("! %s not read: %s", s.Name, plain(s.Problem))
		}
	}
	return p.writeTo(w)
}

func (t Trace) run(p *page, run TracedRun) {
	mood := map[string]Mood{"succeeded": Good, "failed": Bad, "misconfigured": Alert, "unknown": Alert}[run.Outcome]
	p.line("run %s, chain %s, node %s: %s", plain(run.Name), plain(run.Chain), plain(run.Node), p.paint(mood, run.Outcome))
	if run.Outcome != "succeeded" && run.Reason != "" {
		p.line("  %s: %s", plain(run.Reason), truncate(run.Message))
	}
	if f := run.Fault; f.Record != "" || f.Action != "" {
		p.line("%s for record %s, %s %s: %s", t.mark(f.Record != "" && t.Query == f.Record), orNone(f.Record), plain(f.Action),
			plain(strings.Join(append([]string{f.CheckName}, f.ErrorCode...), " ")), truncate(f.Message))
	}
	for _, s := range run.Steps {
		t.step(p, s)
	}
}

func (t Trace) step(p *page, s TracedStep) {
	line := s.Name + ": " + string(s.State)
	if !s.Ended.IsZero() {
		line += " " + p.moment(s.Ended)
	}
	if s.Object != nil {
		name := s.Object.Name
		if s.Object.Namespace != "" {
			name = s.Object.Namespace + "/" + name
		}
		line += ", " + s.Object.Kind + " " + name
	}
	if s.State != v1alpha1.StepDone && s.Reason != "" {
		line += " (" + joined(s.Reason, truncate(s.Message)) + ")"
	}
	p.line("%s %s", t.mark(s.Found), plain(line))
	for _, in := range s.Inputs {
		from := short(in.Preview)
		if len(in.From) > 0 {
			from = "from " + strings.Join(in.From, ", ")
		}
		p.line("%s   < %s  %s  %s", t.mark(isDigest(t.Query, in.Digest)), plain(in.Name), shortDigest(in.Digest), plain(from))
	}
	for _, o := range s.Outputs {
		p.line("%s   > %s  %s  %s", t.mark(isDigest(t.Query, o.Digest)), plain(o.Name), shortDigest(o.Digest), short(o.Preview))
	}
}

func (t Trace) mark(found bool) string {
	if found {
		return "*"
	}
	return " "
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return plain(text)
}

// shortDigest is enough of a digest to ask for it.
func shortDigest(digest string) string {
	const shown = len("sha256:") + 12
	return digest[:min(len(digest), shown)]
}

// short is the first line of a value, as far as it fits.
func short(text string) string {
	const shown = 60
	text, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	runes := []rune(plain(text))
	if len(runes) > shown {
		runes, rest = runes[:shown], "more"
	}
	if rest != "" {
		return string(runes) + " ..."
	}
	return string(runes)
}
