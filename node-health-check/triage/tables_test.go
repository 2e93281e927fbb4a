package triage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

func condition(kind, status string, since time.Duration) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status),
		LastTransitionTime: metav1.Time{Time: testkit.Start.Add(-since)},
	}
}

func TestClassify(t *testing.T) {
	rule := func(kind, status string, d time.Duration) v1alpha1.UnhealthyCondition {
		return v1alpha1.UnhealthyCondition{
			Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), Duration: metav1.Duration{Duration: d},
		}
	}
	tests := map[string]struct {
		conditions []corev1.NodeCondition
		rules      []v1alpha1.UnhealthyCondition
		want       triage.Finding
	}{
		"a node without conditions":             {want: triage.Finding{Health: triage.Healthy}},
		"ready":                                 {conditions: []corev1.NodeCondition{condition("Ready", "True", time.Hour)}, want: triage.Finding{Health: triage.Healthy}},
		"not ready by the default rules":        {conditions: []corev1.NodeCondition{condition("Ready", "False", 301*time.Second)}, want: triage.Finding{Health: triage.Unhealthy, Type: "Ready", Status: "False"}},
		"unknown by the default rules":          {conditions: []corev1.NodeCondition{condition("Ready", "Unknown", 301*time.Second)}, want: triage.Finding{Health: triage.Unhealthy, Type: "Ready", Status: "Unknown"}},
		"exactly as long as the duration":       {conditions: []corev1.NodeCondition{condition("Ready", "False", 300*time.Second)}, want: triage.Finding{Health: triage.Soon, Type: "Ready", Status: "False"}},
		"a second less":                         {conditions: []corev1.NodeCondition{condition("Ready", "False", 299*time.Second)}, want: triage.Finding{Health: triage.Soon, Type: "Ready", Status: "False", In: time.Second}},
		"from the future":                       {conditions: []corev1.NodeCondition{condition("Ready", "False", -time.Minute)}, want: triage.Finding{Health: triage.Soon, Type: "Ready", Status: "False", In: 6 * time.Minute}},
		"rules of one's own replace the others": {conditions: []corev1.NodeCondition{condition("Ready", "False", time.Hour)}, rules: []v1alpha1.UnhealthyCondition{rule("Disk", "True", time.Minute)}, want: triage.Finding{Health: triage.Healthy}},
		"another status of the type":            {conditions: []corev1.NodeCondition{condition("Disk", "False", time.Hour)}, rules: []v1alpha1.UnhealthyCondition{rule("Disk", "True", time.Minute)}, want: triage.Finding{Health: triage.Healthy}},
		"any rule is enough": {
			conditions: []corev1.NodeCondition{condition("Ready", "True", time.Hour), condition("Disk", "True", time.Hour)},
			rules:      []v1alpha1.UnhealthyCondition{rule("Ready", "False", time.Minute), rule("Disk", "True", time.Minute)},
			want:       triage.Finding{Health: triage.Unhealthy, Type: "Disk", Status: "True"},
		},
		"unhealthy is more than soon": {
			conditions: []corev1.NodeCondition{condition("Ready", "False", time.Second), condition("Disk", "True", time.Hour)},
			rules:      []v1alpha1.UnhealthyCondition{rule("Ready", "False", time.Minute), rule("Disk", "True", time.Minute)},
			want:       triage.Finding{Health: triage.Unhealthy, Type: "Disk", Status: "True"},
		},
		"the earliest of several": {
			conditions: []corev1.NodeCondition{condition("Ready", "False", time.Second), condition("Disk", "True", 50*time.Second)},
			rules:      []v1alpha1.UnhealthyCondition{rule("Ready", "False", time.Minute), rule("Disk", "True", time.Minute)},
			want:       triage.Finding{Health: triage.Soon, Type: "Disk", Status: "True", In: 10 * time.Second},
		},
		"without a duration": {conditions: []corev1.NodeCondition{condition("Disk", "True", time.Nanosecond)}, rules: []v1alpha1.UnhealthyCondition{rule("Disk", "True", 0)}, want: triage.Finding{Health: triage.Unhealthy, Type: "Disk", Status: "True"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, triage.Classify(tt.conditions, tt.rules, testkit.Start)); diff != "" {
				t.Errorf("finding (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequired(t *testing.T) {
	tests := []struct {
		min, max string
		observed int
		want     int
		problem  string
	}{
		{min: "75%", observed: 10, want: 8},
		{max: "75%", observed: 10, want: 2},
		{min: "0%", observed: 10, want: 0},
		{min: "100%", observed: 10, want: 10},
		{max: "0%", observed: 10, want: 10},
		{max: "100%", observed: 10, want: 0},
		{max: "1%", observed: 3, want: 2},
		{min: "51%", observed: 3, want: 2},
		{min: "51%", observed: 0, want: 0},
		{min: "11", observed: 20, want: 11},
		{min: "11", observed: 5, want: 11},
		{max: "5", observed: 20, want: 15},
		{max: "5", observed: 3, want: 0},
		{max: "0", observed: 3, want: 3},
		{min: "33%", observed: 100000, want: 33000},
		{observed: 3, problem: "exactly one"},
		{min: "1", max: "1", observed: 3, problem: "exactly one"},
		{min: "101%", observed: 3, problem: "spec.minHealthy"},
		{min: "many", observed: 3, problem: "spec.minHealthy"},
		{max: "-1", observed: 3, problem: "spec.maxUnhealthy"},
	}
	for _, tt := range tests {
		t.Run(tt.min+"|"+tt.max, func(t *testing.T) {
			spec := &v1alpha1.NodeHealthCheckSpec{}
			if tt.min != "" {
				spec.MinHealthy = amount(tt.min)
			}
			if tt.max != "" {
				spec.MaxUnhealthy = amount(tt.max)
			}
			got, err := triage.Required(spec, tt.observed)
			if (err != nil) != (tt.problem != "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Fatalf("error %v, want one of %q", err, tt.problem)
			}
			if got != tt.want {
				t.Errorf("required are %d of %d, want %d", got, tt.observed, tt.want)
			}
		})
	}
}

func TestEscalate(t *testing.T) {
	reboot, terminate, classic := step(rebootKind, 30*time.Minute), step(terminateKind, time.Hour), step(rebootKind, 0)
	second := reboot
	second.Template.Name, second.Multiple = "other", true
	made := func(of triage.Step, age time.Duration, change func(*triage.Remediation)) *triage.Remediation {
		r := &triage.Remediation{Kind: of.Kind, UID: of.Template.Name, Node: "n", Template: of.Template.Name, Created: testkit.Start.Add(-age), Owned: true}
		if change != nil {
			change(r)
		}
		return r
	}
	over := func(of triage.Step) v1alpha1.Remediation {
		r := made(of, time.Hour, nil).Record()
		r.TimedOut = &metav1.Time{Time: testkit.Start}
		return r
	}
	both := []triage.Step{reboot, terminate}
	tests := map[string]struct {
		steps   []triage.Step
		tried   []v1alpha1.Remediation
		objects []*triage.Remediation
		turn    triage.Turn
		step    string
		event   bool
		in      time.Duration
	}{
		"nothing yet":             {steps: both, turn: triage.TurnBegin, step: "rebootnode"},
		"the first is over":       {steps: both, tried: []v1alpha1.Remediation{over(reboot)}, turn: triage.TurnBegin, step: "terminatenode"},
		"all are over":            {steps: both, tried: []v1alpha1.Remediation{over(reboot), over(terminate)}, turn: triage.TurnNone},
		"no steps":                {turn: triage.TurnNone},
		"at work":                 {steps: both, objects: []*triage.Remediation{made(reboot, time.Minute, nil)}, turn: triage.TurnRun, step: "rebootnode", in: 29*time.Minute + time.Second},
		"at its very end":         {steps: both, objects: []*triage.Remediation{made(reboot, 30*time.Minute, nil)}, turn: triage.TurnRun, step: "rebootnode", in: time.Second},
		"made ahead of time":      {steps: both, objects: []*triage.Remediation{made(reboot, -time.Hour, nil)}, turn: triage.TurnRun, step: "rebootnode", in: 30*time.Minute + time.Second},
		"its time is up":          {steps: both, objects: []*triage.Remediation{made(reboot, 30*time.Minute+time.Second, nil)}, turn: triage.TurnOver, step: "rebootnode", event: true},
		"failed":                  {steps: both, objects: []*triage.Remediation{made(reboot, 0, func(r *triage.Remediation) { r.Succeeded = "False" })}, turn: triage.TurnOver, step: "rebootnode", event: true},
		"not known":               {steps: both, objects: []*triage.Remediation{made(reboot, 0, func(r *triage.Remediation) { r.Succeeded = "Unknown" })}, turn: triage.TurnRun, step: "rebootnode", in: 30*time.Minute + time.Second},
		"succeeded early":         {steps: both, objects: []*triage.Remediation{made(reboot, 0, func(r *triage.Remediation) { r.Succeeded = "True" })}, turn: triage.TurnRun, step: "rebootnode", in: 30*time.Minute + time.Second},
		"succeeded, time is up":   {steps: both, objects: []*triage.Remediation{made(reboot, time.Hour, func(r *triage.Remediation) { r.Succeeded = "True" })}, turn: triage.TurnOver, step: "rebootnode"},
		"told, not yet recorded":  {steps: both, objects: []*triage.Remediation{made(reboot, 0, func(r *triage.Remediation) { r.Abandoned = true })}, turn: triage.TurnOver, step: "rebootnode"},
		"going":                   {steps: both, objects: []*triage.Remediation{made(reboot, time.Hour, func(r *triage.Remediation) { r.Deleting = true })}, turn: triage.TurnRemoving, step: "rebootnode"},
		"somebody else's":         {steps: both, objects: []*triage.Remediation{made(reboot, time.Hour, func(r *triage.Remediation) { r.Owned = false })}, turn: triage.TurnForeign, step: "rebootnode"},
		"ours beside another's":   {steps: both, objects: []*triage.Remediation{made(reboot, 0, nil), made(reboot, time.Hour, func(r *triage.Remediation) { r.Owned = false })}, turn: triage.TurnRun, step: "rebootnode", in: 30*time.Minute + time.Second},
		"a classic one failed":    {steps: []triage.Step{classic}, objects: []*triage.Remediation{made(classic, 100*time.Hour, func(r *triage.Remediation) { r.Succeeded = "False" })}, turn: triage.TurnRun, step: "rebootnode"},
		"another one of its kind": {steps: []triage.Step{reboot, second}, tried: []v1alpha1.Remediation{over(reboot)}, objects: []*triage.Remediation{made(reboot, time.Hour, nil)}, turn: triage.TurnBegin, step: "other"},
		"the kind's second":       {steps: []triage.Step{reboot, second}, tried: []v1alpha1.Remediation{over(reboot)}, objects: []*triage.Remediation{made(reboot, time.Hour, nil), made(second, 0, nil)}, turn: triage.TurnRun, step: "other", in: 30*time.Minute + time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := triage.Escalate(tt.steps, tt.tried, tt.objects, testkit.Start)
			got := ""
			if e.Step != nil {
				got = e.Step.Template.Name
			}
			if e.Turn != tt.turn || got != tt.step || e.NotifyRemediator != tt.event || e.In != tt.in {
				t.Errorf("%s of %q, tell %t, in %s; want %s of %q, %t, %s", e.Turn, got, e.NotifyRemediator, e.In, tt.turn, tt.step, tt.event, tt.in)
			}
			if (e.Turn == triage.TurnOver) != (e.Why != "") {
				t.Errorf("%s because of %q", e.Turn, e.Why)
			}
		})
	}
}

func TestGate(t *testing.T) {
	tests := map[string]struct {
		change func(v *triage.View, n *corev1.Node)
		busy   []string
		want   triage.Blocker
	}{
		"free":                           {want: triage.Free},
		"excluded":                       {change: func(_ *triage.View, n *corev1.Node) { n.Labels[v1alpha1.ExcludeLabel] = "true" }, want: triage.BlockerExcluded},
		"another value excludes nothing": {change: func(_ *triage.View, n *corev1.Node) { n.Labels[v1alpha1.ExcludeLabel] = "yes" }, want: triage.Free},
		"opted out":                      {change: func(_ *triage.View, n *corev1.Node) { n.Labels[nodemark.ManagedLabel] = "false" }, want: triage.BlockerOptedOut},
		"quarantined":                    {change: func(_ *triage.View, n *corev1.Node) { n.Labels[nodemark.StateLabel] = "quarantined" }, want: triage.BlockerQuarantine},
		"being repaired":                 {change: func(_ *triage.View, n *corev1.Node) { n.Labels[nodemark.StateLabel] = "remediating" }, want: triage.BlockerQuarantine},
		"drain failed":                   {change: func(_ *triage.View, n *corev1.Node) { n.Labels[nodemark.StateLabel] = "drain-failed" }, want: triage.BlockerQuarantine},
		"given up by the pipeline":       {change: func(_ *triage.View, n *corev1.Node) { n.Labels[nodemark.StateLabel] = "remediation-failed" }, want: triage.Free},
		"external": {change: func(_ *triage.View, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "nvsentinel.dgxc.nvidia.com/external-remediation", Value: "x"}}
		}, want: triage.BlockerExternal},
		"a worker beside the control plane":           {busy: []string{"cp"}, want: triage.Free},
		"a second control-plane node":                 {change: func(_ *triage.View, n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }, busy: []string{"cp"}, want: triage.BlockerControlPlane},
		"a second master":                             {change: func(_ *triage.View, n *corev1.Node) { n.Labels["node-role.kubernetes.io/master"] = "x" }, busy: []string{"cp"}, want: triage.BlockerControlPlane},
		"the one control-plane node":                  {change: func(_ *triage.View, n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }, busy: []string{"n"}, want: triage.Free},
		"a worker beside a kind that can not be read": {change: func(v *triage.View, _ *corev1.Node) { v.ControlPlaneUnread = "forbidden" }, want: triage.Free},
		"a kind that can not be read": {change: func(v *triage.View, n *corev1.Node) {
			v.ControlPlaneUnread, n.Labels = "forbidden", map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}, want: triage.BlockerUnreadable},
		"another's lease": {change: func(v *triage.View, _ *corev1.Node) {
			v.Leases = map[string]triage.Lease{"n": {Holder: "x", Renewed: testkit.Start, Duration: time.Minute}}
		}, want: triage.BlockerLease},
		"another's lease that has run out": {change: func(v *triage.View, _ *corev1.Node) {
			v.Leases = map[string]triage.Lease{"n": {Holder: "x", Renewed: testkit.Start.Add(-61 * time.Second), Duration: time.Minute}}
		}, want: triage.Free},
		"our lease": {change: func(v *triage.View, _ *corev1.Node) {
			v.Leases = map[string]triage.Lease{"n": {Holder: "NodeHealthCheck-workers", Renewed: testkit.Start, Duration: time.Minute}}
		}, want: triage.Free},
		"a dry run": {change: func(v *triage.View, _ *corev1.Node) { v.DryRun = true }, want: triage.BlockerDryRun},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(0, nil)
			n := w.node("n")
			if tt.change != nil {
				tt.change(&w.view, n)
			}
			if got := triage.Gate(w.view, n, tt.busy, testkit.Start); got != tt.want {
				t.Errorf("held by %q, want %q", got, tt.want)
			}
		})
	}
}

func TestGateOf(t *testing.T) {
	enough, few := triage.Census{Observed: 3, Healthy: 2, Required: 2}, triage.Census{Observed: 3, Healthy: 1, Required: 2}
	storm := triage.Storm{Active: true}
	tests := map[string]struct {
		change func(v *triage.View)
		census triage.Census
		storm  triage.Storm
		want   triage.Blocker
	}{
		"free":                        {census: enough, want: triage.Free},
		"a budget used up":            {census: few, want: triage.BlockerBudget},
		"a storm":                     {census: enough, storm: storm, want: triage.BlockerStorm},
		"a storm without a budget":    {census: few, storm: storm, want: triage.BlockerBudget},
		"paused, whatever the budget": {change: func(v *triage.View) { v.Check.Spec.PauseRequests = []string{"x"} }, census: few, want: triage.BlockerPaused},
		"disabled before all": {change: func(v *triage.View) {
			v.Problem, v.Check.Spec.PauseRequests = &triage.Problem{}, []string{"x"}
		}, census: few, want: triage.BlockerDisabled},
		"the brake": {change: func(v *triage.View) { v.Pause = "on" }, census: enough, want: triage.BlockerEmergencyStop},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(0, nil)
			if tt.change != nil {
				tt.change(&w.view)
			}
			if got := triage.GateOf(w.view, tt.census, tt.storm); got != tt.want {
				t.Errorf("held by %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNewRemediation(t *testing.T) {
	w := newWorld(0, nil)
	n := w.node("n")
	n.Labels["node-role.kubernetes.io/control-plane"] = ""
	s := step(rebootKind, 0)
	s.Template.Namespace = "ns"
	s.Spec = map[string]any{"strategy": "reboot", "params": map[string]any{"n": int64(42), "f": 0.5, "none": nil, "list": []any{true}}}
	got := triage.NewRemediation(w.view.Check, s, n).Object
	want := map[string]any{
		"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "RebootNode",
		"metadata": map[string]any{
			"name": "n", "namespace": "ns",
			"annotations":     map[string]any{v1alpha1.NodeNameAnnotation: "n", v1alpha1.TemplateNameAnnotation: "rebootnode"},
			"labels":          map[string]any{v1alpha1.PartOfLabel: "node-healthcheck-controller", v1alpha1.ControlPlaneLabel: ""},
			"ownerReferences": []any{map[string]any{"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "name": "workers", "uid": "check-uid"}},
		},
		"spec": map[string]any{"strategy": "reboot", "params": map[string]any{"n": int64(42), "f": 0.5, "none": nil, "list": []any{true}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remediation (-want +got):\n%s", diff)
	}
	got["spec"].(map[string]any)["params"].(map[string]any)["n"] = int64(1)
	if s.Spec["params"].(map[string]any)["n"] != int64(42) {
		t.Error("the template's spec is not copied")
	}
}

// TestNamesOfRemediations: they are the node's; where there may be several of a kind,
// each template has its own, always the same, and none is too long.
func TestNamesOfRemediations(t *testing.T) {
	plain, one, two := step(rebootKind, 0), step(rebootKind, 0), step(rebootKind, 0)
	one.Multiple, two.Multiple, two.Template.Name = true, true, "other"
	long := strings.Repeat("n", 253)
	if plain.Name("n") != "n" || plain.Name(long) != long {
		t.Errorf("names %s, %s", plain.Name("n"), plain.Name(long))
	}
	seen := map[string]bool{}
	for _, name := range []string{one.Name("n"), two.Name("n"), one.Name(long), two.Name(long), one.Name(long[:252] + "x")} {
		if seen[name] || len(name) > 253 {
			t.Errorf("name %s of %d characters", name, len(name))
		}
		seen[name] = true
	}
	if again := one.Name("n"); again != one.Name("n") {
		t.Error("a name changes")
	}
}

// TestAKindThatCannotBeRead: nobody knows whether its remediations are gone, so the
// node is not counted as healthy, keeps its entry and its lease, and nothing begins.
func TestAKindThatCannotBeRead(t *testing.T) {
	w := newWorld(0, nil)
	w.node("n")
	w.fall("n")
	w.pass()
	w.recover("n")
	w.view.Remediations, w.view.Steps = nil, nil
	w.view.Unread = map[schemaKind]bool{rebootKind: true}
	w.view.Problem = &triage.Problem{Reason: v1alpha1.ReasonTemplateNotFound, Message: "no such kind", Retry: true}
	w.pass()
	s := w.view.Check.Status
	if *s.HealthyNodes != 0 || len(s.UnhealthyNodes) != 1 || len(s.UnhealthyNodes[0].Remediations) != 1 || len(w.did) != 0 {
		t.Errorf("status %+v, did %v", s, w.did)
	}
}

// TestStatusConverges: a pass over the same facts writes nothing.
func TestStatusConverges(t *testing.T) {
	w := newWorld(1, new(int32(0)), step(rebootKind, 30*time.Minute))
	w.node("a")
	w.node("b")
	w.fall("a")
	w.pass()
	before := w.view.Check.Status.DeepCopy()
	w.now = w.now.Add(time.Second)
	w.pass()
	if triage.Changed(*before, w.view.Check.Status) || len(w.notices) != 0 || len(w.did) != 0 {
		t.Errorf("the second pass changed the status, said %v, did %v:\n%s", w.notices, w.did, cmp.Diff(*before, w.view.Check.Status))
	}
	if !before.LastUpdateTime.Equal(w.view.Check.Status.LastUpdateTime) {
		t.Error("the time of the last update changed without an update")
	}
	if before.UnhealthyNodes[0].Remediations[0].Resource.UID != types.UID("uid-1") {
		t.Errorf("recorded %+v", before.UnhealthyNodes[0].Remediations)
	}
}
