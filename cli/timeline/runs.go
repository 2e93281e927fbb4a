package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

// Underway is a run of a repair chain that has not come to its end.
type Underway struct {
	Run   string    `json:"run"`
	Node  string    `json:"node"`
	Chain string    `json:"chain"`
	Began time.Time `json:"began"`
	// Step is the one that is due, number Nth of Steps; empty before the run was looked
	// at for the first time.
	Step   string             `json:"step,omitempty"`
	Nth    int                `json:"nth,omitempty"`
	Steps  int                `json:"steps,omitempty"`
	State  v1alpha1.StepState `json:"state,omitempty"`
	Reason string             `json:"reason,omitempty"`
}

// Refused is a repair chain or template that cannot be used.
type Refused struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

// RefusedBy is what a chain's or template's conditions say against it.
func RefusedBy(kind, name string, conditions []metav1.Condition) (Refused, bool) {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return Refused{}, false
	}
	return Refused{kind, name, c.Message}, true
}

// misconfigured says whether a run ended because its chain or a template of it is wrong.
func misconfigured(end *metav1.Condition) bool {
	return end != nil && end.Status == metav1.ConditionFalse &&
		slices.Contains([]string{v1alpha1.ReasonMisconfigured, v1alpha1.ReasonRejected}, end.Reason)
}

// outcomeUnknown says whether a run ended because nobody knows what a step did to the node.
func outcomeUnknown(end *metav1.Condition) bool {
	return end != nil && end.Status == metav1.ConditionFalse && end.Reason == v1alpha1.ReasonOutcomeUnknown
}

// EndedRun is a run that did not repair its node, and that says nothing about the node.
type EndedRun struct {
	Run     string `json:"run"`
	Node    string `json:"node"`
	Chain   string `json:"chain"`
	Message string `json:"message"`
}

// unrepairedBy are the runs of some end whose nodes have no newer run, by node.
func unrepairedBy(runs []v1alpha1.RepairRun, ended func(*metav1.Condition) bool) (out []EndedRun) {
	newest := map[string]*v1alpha1.RepairRun{}
	for i := range runs {
		node := v1alpha1.NodeOf(&runs[i])
		if last := newest[node]; last == nil || last.CreationTimestamp.Before(&runs[i].CreationTimestamp) {
			newest[node] = &runs[i]
		}
	}
	for node, run := range newest {
		if end := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); ended(end) {
			out = append(out, EndedRun{Run: run.Name, Node: node, Chain: run.Spec.Chain, Message: joined(end.Reason, end.Message)})
		}
	}
	slices.SortFunc(out, func(a, b EndedRun) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// underway are the runs that have not come to their end, the oldest first.
func underway(runs []v1alpha1.RepairRun) (out []Underway) {
	for i := range runs {
		run := &runs[i]
		if end := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); end != nil && end.Status != metav1.ConditionUnknown {
			continue
		}
		u := Underway{Run: run.Name, Node: v1alpha1.NodeOf(run), Chain: run.Spec.Chain, Began: run.CreationTimestamp.UTC(), Steps: len(run.Status.Steps)}
		open := func(s v1alpha1.StepStatus) bool {
			return s.State == v1alpha1.StepWaiting || s.State == v1alpha1.StepRunning
		}
		if i := slices.IndexFunc(run.Status.Steps, open); i >= 0 {
			s := run.Status.Steps[i]
			u.Step, u.Nth, u.State, u.Reason = s.Name, i+1, s.State, joined(s.Reason, s.Message)
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Underway) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Run, b.Run)) })
	return out
}

// runs lists the runs that are under way, and what no run can begin with.
func (p *page) runs(f Fleet) {
	for _, r := range f.Refused {
		p.line("%s", p.paint(Alert, "! "+plain(fmt.Sprintf("%s %s cannot be used: %s", r.Kind, r.Name, brief(r.Message)))))
	}
	for _, m := range f.Misconfigured {
		text := fmt.Sprintf("RepairRun %s has not repaired node %s: RepairChain %s is misconfigured: %s", m.Run, m.Node, m.Chain, brief(m.Message))
		p.line("%s", p.paint(Alert, "! "+plain(text)))
	}
	for _, u := range f.OutcomeUnknown {
		text := fmt.Sprintf("what RepairRun %s did to node %s is unknown: %s", u.Run, u.Node, brief(u.Message))
		p.line("%s", p.paint(Alert, "! "+plain(text)))
	}
	if len(f.Runs) == 0 {
		return
	}
	cells := [][]string{{"RUN", "NODE", "CHAIN", "FOR", "STEP", "WHY"}}
	moods := []Mood{Plain}
	for _, r := range f.Runs {
		step := "not looked at yet; does repair-chain run?"
		if r.Step != "" {
			step = fmt.Sprintf("%d of %d: %s %s", r.Nth, r.Steps, r.Step, r.State)
		}
		cells = append(cells, []string{plain(r.Run), plain(r.Node), plain(r.Chain), span(f.At.Sub(r.Began)), plain(step), brief(r.Reason)})
		moods = append(moods, Plain)
	}
	p.line("")
	p.table(cells, moods)
}
