package stories

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	analyzer "github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// analyze makes health-events-analyzer evaluate the newest event with its built-in rule that
// counts the repairs of a node.
func (w *world) analyze() {
	rules := slices.DeleteFunc(rule.Default(), func(r rule.Rule) bool { return r.Name != "MultipleRemediations" })
	if len(rules) != 1 {
		w.t.Fatalf("%d rules count repairs", len(rules))
	}
	window, newest := analyzer.NewWindow(rules), time.Time{}
	for _, r := range w.list(record.Selector{}) {
		newest, _ = window.Add(analyzer.NewFact(r))
	}
	for _, f := range window.Evaluate(newest, w.now) {
		e := f.Event(record.Process)
		w.log("analyzer", "%s: %s %s", f.Reason, e.CheckName, e.Metadata["sources"])
	}
}
