package reconciler_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// events are the Events about the bench's node, "reason xcount: message".
func (b *bench) events() []string {
	b.t.Helper()
	if err := b.Events.Flush(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	list, err := b.cluster.Client().CoreV1().Events(metav1.NamespaceDefault).List(b.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + b.node})
	if err != nil {
		b.t.Fatalf("listing events: %v", err)
	}
	var out []string
	for _, e := range list.Items {
		if e.Source.Component == "nvsentinel-fault-remediation" && e.Type == "Warning" {
			out = append(out, fmt.Sprintf("%s x%d: %s", e.Reason, e.Count, e.Message))
		}
	}
	slices.Sort(out)
	return out
}

// needsHuman is what the Node's annotation asks a person for.
func (b *bench) needsHuman() []nodemark.Call {
	b.t.Helper()
	var view struct{ ManualInterventions []nodemark.Call }
	if text := b.liveNode().Annotations[nodemark.LatestFaultRemediationState]; text != "" {
		if err := json.Unmarshal([]byte(text), &view); err != nil {
			b.t.Fatalf("annotation %s: %v", text, err)
		}
	}
	return view.ManualInterventions
}

// once are the default actions with one attempt each; escalate is RESTART_VM's
// next.
func once(t *testing.T, onFailure string) action.Policy {
	t.Helper()
	actions := action.Default()
	for name, c := range actions {
		c.Attempts = &action.Attempts{Max: 1, Window: time.Hour}
		if name == string(record.ActionRestartVM) {
			c.OnFailure = onFailure
		}
		actions[name] = c
	}
	return compile(t, actions)
}

// TestAttemptsExhaustedRequireManualIntervention: label, Event, record and annotation
// report it, each once, however often the node is looked at.
func TestAttemptsExhaustedRequireManualIntervention(t *testing.T) {
	b := newBench(t)
	b.Repairs = once(t, "")
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	b.finish(b.onlyObject(), "NodeReady", "False", "Timeout", "boot-1")
	b.settles()
	b.settles()
	b.shows("r1", "false ManualInterventionRequired(AttemptsExhausted) [1 Unhealthy uid=true sent=true] label=remediation-failed")
	message := b.record("r1").Status.Remediation.Message
	want := nodemark.Call{Record: "r1", Action: "RESTART_VM", Reason: "AttemptsExhausted", Message: message}
	if got := b.needsHuman(); !slices.Equal(got, []nodemark.Call{want}) {
		t.Errorf("annotation asks for %+v, want %+v", got, want)
	}
	reported := []string{reconciler.EventNeedsHuman + " x1: AttemptsExhausted: " + message + " (record r1)"}
	if got := b.events(); !slices.Equal(got, reported) {
		t.Errorf("events %q, want %q", got, reported)
	}
	// A second one is reported too.
	b.fault("r2", record.ActionContactSupport)
	b.settles()
	if got := b.events(); len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), "ManualActionRequired: CONTACT_SUPPORT") {
		t.Errorf("events %q, want one more for r2", got)
	}
}

// TestEventsThatFail: an API server that takes no Events holds nothing up, whether it
// refuses them or fails; one that failed is written later.
func TestEventsThatFail(t *testing.T) {
	forbidden := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	for name, tt := range map[string]struct {
		code  int
		body  string
		later int
	}{
		"unavailable": {http.StatusInternalServerError, "", 1},
		"forbidden":   {http.StatusForbidden, forbidden, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.fault("r1", record.ActionContactSupport)
			var back atomic.Bool
			var labels []string // of the Node, when an Event was tried
			b.Events = b.recorder(b.client(func(r *http.Request) (*http.Response, error) {
				labels = append(labels, b.liveNode().Labels[nodemark.StateLabel])
				if back.Load() {
					return nil, nil
				}
				return answer(r, tt.code, tt.body), nil
			}))
			b.settles()
			b.shows("r1", "false ManualInterventionRequired(ManualActionRequired) label=remediation-failed")
			if len(labels) == 0 || labels[0] != "drain-succeeded" {
				t.Errorf("an Event was tried when the Node showed %q, want it before the mark", labels)
			}
			back.Store(true)
			if got := b.events(); len(got) != tt.later {
				t.Errorf("events %q, want %d", got, tt.later)
			}
		})
	}
}

// TestEscalation: the next action's object follows, the record and an Event report
// why; a recovery in between ends it all.
func TestEscalation(t *testing.T) {
	b := newBench(t)
	b.Repairs = once(t, "escalate REPLACE_VM")
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	b.finish(b.onlyObject(), "NodeReady", "False", "Timeout", "boot-1")
	b.parks(decision.WaitObject)
	b.shows("r1", "null (Escalated) [1 Unhealthy uid=true sent=true] [1 Unknown uid=true sent=true] label=remediating")
	rem := b.record("r1").Status.Remediation
	if at := rem.Attempts[1]; rem.Action != record.ActionReplaceVM || at.Kind != "TerminateNode" || at.Group != "terminate" {
		t.Errorf("escalated to %s, attempt %+v", rem.Action, at)
	}
	if got := b.events(); len(got) != 1 || !strings.HasPrefix(got[0], reconciler.EventEscalated+" x1: RESTART_VM has no attempt left: ") {
		t.Errorf("events %q, want the escalation", got)
	}
}

// TestEscalationSurvivesTheStore: the store fails around the status update that
// escalates, written or not; the same object follows.
func TestEscalationSurvivesTheStore(t *testing.T) {
	for name, written := range map[string]bool{"lost": false, "written": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Repairs = once(t, "escalate REPLACE_VM")
			b.fault("r1", record.ActionRestartVM)
			b.parks(decision.WaitObject)
			b.finish(b.onlyObject(), "NodeReady", "False", "Timeout", "boot-1")
			// The first update closes the attempt, the second escalates.
			b.Records = own(&failing{Store: b.store, fail: 2, written: written})
			if err := b.Handle(t.Context(), b.node); err == nil {
				t.Fatal("no interruption at the escalation")
			}
			b.parks(decision.WaitObject)
			b.shows("r1", "null (Escalated) [1 Unhealthy uid=true sent=true] [1 Unknown uid=true sent=true] label=remediating")
		})
	}
}

// TestTemplateThatRendersNothing: a template that makes no object for one fault
// leaves that fault to a person, and no object is left behind.
func TestTemplateThatRendersNothing(t *testing.T) {
	b := newBench(t)
	actions := action.Default()
	some := actions["RESTART_VM"]
	some.TemplateFileName = ""
	some.Template = "{{ if ne .HealthEvent.Agent \"test-monitor\" }}apiVersion: {{.ApiGroup}}/{{.Version}}\nkind: {{.Kind}}\nspec: {nodeName: {{quote .NodeName}}}\n{{ end }}"
	actions["RESTART_VM"] = some
	b.Repairs = compile(t, actions)
	b.fault("r1", record.ActionRestartVM)
	b.settles()
	b.shows("r1", "false ManualInterventionRequired(CreateRefused) [1 Cancelled uid=false sent=false] label=remediation-failed")
	if got := b.needsHuman(); len(got) != 1 || !strings.Contains(got[0].Message, "renders no object") || !strings.Contains(got[0].Message, "RESTART_VM") {
		t.Errorf("asks for %+v, want what is wrong with which template", got)
	}
	if n := len(b.objects()); n != 0 {
		t.Errorf("%d objects, want none", n)
	}
}
