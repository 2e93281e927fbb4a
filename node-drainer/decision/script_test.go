package decision

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestScripts plays the life of one node per file. A script changes the world
// (see world.do) and asks with "run" for the steps until the drain waits.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		w := newWorld()
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			return w.do(t, d)
		})
	})
}

// world is what a script changes and the decision sees.
type world struct {
	view    View
	policy  Policy
	now     time.Time
	budgets map[string]bool // by namespace/name: allows a disruption
	covered map[types.UID]string
	// evicted are the owners of which a pod was evicted and none has come since.
	evicted map[string]bool
}

func newWorld() *world {
	return &world{
		view:   View{Attempts: map[types.UID]Attempt{}, Returns: map[string]int{}},
		policy: DefaultPolicy(eviction.Policy{}), now: start,
		budgets: map[string]bool{}, covered: map[types.UID]string{}, evicted: map[string]bool{},
	}
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (w *world) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "policy":
		c := eviction.Default()
		if _, err := toml.Decode(d.Input, &c); err != nil {
			t.Fatal(err)
		}
		p, err := c.Compile()
		if err != nil {
			t.Fatal(err)
		}
		w.policy = DefaultPolicy(p)
	case "node":
		w.node(t, d)
	case "fault":
		w.fault(t, d)
	case "clear", "cancel":
		w.end(d)
	case "pod":
		w.pod(t, d)
	case "gone":
		w.view.Pods = slices.DeleteFunc(w.view.Pods, func(p *corev1.Pod) bool { return d.HasArg(name(p)) })
	case "budget":
		w.budgets[d.CmdArgs[0].Key] = d.HasArg("allows")
	case "clock":
		step, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(step)
	case "repaired":
		for i := range w.view.Records {
			if d.HasArg(w.view.Records[i].ID) {
				w.view.Records[i].Status.FaultRemediated = record.Yes()
			}
		}
	case "escalated":
		for i := range w.view.Records {
			if d.HasArg(w.view.Records[i].ID) {
				w.view.Records[i].Status.Remediation = &record.Remediation{Action: record.ActionRestartBM}
			}
		}
	case "newer": // only a newer version may change the records, or this is that version
		for i := range w.view.Records {
			if d.HasArg(w.view.Records[i].ID) {
				w.view.Records[i].MinVersion = record.Version + 1
			}
			if d.HasArg("now") {
				w.view.Records[i].MinVersion = 0
			}
		}
	case "restart":
		w.view.Attempts, w.view.ReportedAt = map[types.UID]Attempt{}, time.Time{}
		w.view.Returns, w.view.MovedAt, w.evicted = map[string]int{}, time.Time{}, map[string]bool{}
	case "run":
		return w.run(t)
	case "records":
		return w.records()
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return ""
}

// node sets the Node as a whole: session=ID, cordoned, taint=KEY, released,
// state=STATE; "node missing" takes it away.
func (w *world) node(t *testing.T, d *datadriven.TestData) {
	state := w.view.Node.State
	w.view.Node = Node{Exists: !d.HasArg("missing"), Unschedulable: d.HasArg("cordoned"), Released: d.HasArg("released"), State: state}
	d.MaybeScanArgs(t, "session", &w.view.Node.Session)
	var key, mark string
	if d.MaybeScanArgs(t, "taint", &key) {
		w.view.Node.Taints = []record.Taint{{Key: key, Value: "true", Effect: "NoSchedule"}}
	}
	if d.MaybeScanArgs(t, "state", &mark) {
		w.view.Node.State = nodemark.State(mark)
	}
}

// fault stores an evaluated fault: "fault ID session=ID [cordon] [taint=KEY]
// [effect=NoSchedule] [force] [skip] [reset=GPU]"; one that opens its session
// is Quarantined.
func (w *world) fault(t *testing.T, d *datadriven.TestData) {
	r := record.Record{ID: d.CmdArgs[0].Key, CreatedAt: w.now, Append: int64(len(w.view.Records) + 1)}
	r.Event = record.Event{ID: r.ID, ProcessingStrategy: record.Process, IsFatal: true}
	var gpu string
	if d.MaybeScanArgs(t, "reset", &gpu) {
		r.Event.RecommendedAction = record.ActionComponentReset
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: gpu}}
	}
	if d.HasArg("force") || d.HasArg("skip") {
		r.Event.DrainOverrides = &record.Override{Force: d.HasArg("force"), Skip: d.HasArg("skip")}
	}
	verdict := &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: d.HasArg("cordon")}, At: w.now}
	key, effect := "", "NoSchedule"
	d.MaybeScanArgs(t, "effect", &effect)
	if d.MaybeScanArgs(t, "taint", &key) {
		verdict.Effects.Taints = []record.Taint{{Key: key, Value: "true", Effect: effect}}
	}
	d.MaybeScanArgs(t, "session", &r.Status.Session)
	r.Status.QuarantineVerdict = verdict
	r.Status.NodeQuarantined = record.AlreadyQuarantined
	if r.Status.Session == r.ID {
		r.Status.NodeQuarantined = record.Quarantined
	}
	r.Status.Faults = []record.Fault{{Key: "k/" + r.ID}}
	w.view.Records = append(w.view.Records, r)
}

// end clears faults, or cancels their quarantine as a manual release does.
func (w *world) end(d *datadriven.TestData) {
	for _, arg := range d.CmdArgs {
		for i := range w.view.Records {
			r := &w.view.Records[i]
			if r.ID != arg.Key {
				continue
			}
			at := w.now
			r.Status.Faults = []record.Fault{{Key: "k/" + r.ID, ClearedTimestamp: &at, ClearedBy: "recovery"}}
			if d.Cmd == "cancel" {
				r.Status.NodeQuarantined = record.QuarantineCanceled
			}
		}
	}
}

// own gives a pod its controller, "owner=GROUP/VERSION/KIND/NAME", and notes when that
// puts a pod back.
func (w *world) own(t *testing.T, d *datadriven.TestData, p *corev1.Pod) {
	var written string
	if !d.MaybeScanArgs(t, "owner", &written) {
		return
	}
	part := strings.Split(written, "/")
	yes, n := true, len(part)
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: strings.Join(part[:n-2], "/"), Kind: part[n-2], Name: part[n-1], UID: types.UID("uid-" + part[n-1]), Controller: &yes,
	}}
	if owner := eviction.Owner(p); w.evicted[owner] {
		w.view.Returns[owner]++
		delete(w.evicted, owner)
	}
}

// pod adds pods: "pod NS/NAME... [budget=NS/NAME[+NAME]] [daemonset] [finished]
// [notready] [gpu=UUID] [owner=GROUP/VERSION/KIND/NAME]".
func (w *world) pod(t *testing.T, d *datadriven.TestData) {
	budget := ""
	d.MaybeScanArgs(t, "budget", &budget)
	gpu := ""
	d.MaybeScanArgs(t, "gpu", &gpu)
	for _, arg := range d.CmdArgs {
		ns, podName, ok := strings.Cut(arg.Key, "/")
		if !ok {
			continue
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: podName, UID: types.UID(fmt.Sprintf("%s-%d", arg.Key, w.now.Unix()))}}
		p.CreationTimestamp = metav1.NewTime(w.now)
		p.Status.Phase = corev1.PodRunning
		if d.HasArg("finished") {
			p.Status.Phase = corev1.PodSucceeded
		}
		if d.HasArg("daemonset") {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", Controller: &yes}}
		}
		w.own(t, d, p)
		if gpu != "" {
			p.Annotations = map[string]string{nodemark.DevicesAnnotation: fmt.Sprintf(`{"devices":{"nvidia.com/gpu":[%q]}}`, gpu)}
		}
		if d.HasArg("notready") {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.now)}}
		}
		w.covered[p.UID] = budget
		w.view.Pods = append(w.view.Pods, p)
	}
}

// run takes steps as the handler would until the drain waits.
func (w *world) run(t *testing.T) string {
	var out strings.Builder
	for range 20 {
		for uid, a := range w.view.Attempts {
			a.Allows = a.Result == Refused && w.budgets[w.covered[uid]]
			w.view.Attempts[uid] = a
		}
		s := Next(w.view, w.policy, w.now)
		w.describe(&out, s)
		w.apply(t, s)
		if s.EndsPass() {
			return out.String()
		}
	}
	t.Fatalf("the drain does not come to rest:\n%s", out.String())
	return ""
}

func (w *world) describe(out *strings.Builder, s Step) {
	fmt.Fprintf(out, "%s %s", s.Kind, s.Why)
	for _, p := range s.Pods {
		out.WriteString(" " + name(p))
	}
	if s.Label != "" {
		fmt.Fprintf(out, " label=%s", s.Label)
	}
	if s.Kind == Wait {
		out.WriteString(" until=" + s.Until.Format("15:04:05"))
	}
	out.WriteString("\n")
	for _, st := range s.Updates {
		fmt.Fprintf(out, "  %s %s: %s", st.ID, st.Status.Status, st.Status.Message)
		if st.Status.LeftAlone != "" {
			out.WriteString(" leftalone=" + st.Status.LeftAlone)
		}
		out.WriteString("\n")
	}
	for _, b := range s.Blocked {
		fmt.Fprintf(out, "  blocked %s", b.Why)
		for _, by := range b.By {
			out.WriteString(" " + by)
		}
		if b.Overdue {
			out.WriteString(" overdue")
		}
		out.WriteString("\n")
	}
}

func (w *world) apply(t *testing.T, s Step) {
	if s.Label != "" {
		w.view.Node.State = s.Label
	}
	for _, p := range s.Pods {
		w.takeAway(s.Kind, p)
	}
	for _, st := range s.Updates {
		i := slices.IndexFunc(w.view.Records, func(r record.Record) bool { return r.ID == st.ID })
		before := w.view.Records[i].Status
		after := st.On(before, w.now)
		if err := record.CheckWrite(record.NodeDrainer, before, after); err != nil {
			t.Errorf("illegal update: %v", err)
		}
		w.view.Records[i].Status = after
		if s.Kind == Wait {
			w.view.ReportedAt = w.now
		}
	}
}

// takeAway answers an eviction as the API server would: terminating for its
// grace period of 30 s, or refused by its budget. Deletion is immediate.
func (w *world) takeAway(kind Kind, p *corev1.Pod) {
	if kind == Delete {
		w.accepted(p)
		w.view.Pods = slices.DeleteFunc(w.view.Pods, func(x *corev1.Pod) bool { return x.UID == p.UID })
		return
	}
	if budget := w.covered[p.UID]; budget != "" && !w.budgets[budget] {
		tries := w.view.Attempts[p.UID].Tries + 1
		w.view.Attempts[p.UID] = Attempt{At: w.now, Result: Refused, Tries: tries, Budgets: budgets(budget)}
		return
	}
	end := metav1.NewTime(w.now.Add(30 * time.Second))
	p.DeletionTimestamp = &end
	w.accepted(p)
	w.view.Attempts[p.UID] = Attempt{At: w.now, Result: Accepted}
}

func (w *world) accepted(p *corev1.Pod) {
	w.view.MovedAt = w.now
	if owner := eviction.Owner(p); owner != "" {
		w.evicted[owner] = true
	}
}

// budgets are those of "NS/NAME+NAME", of which the API server rejects more than one.
func budgets(written string) []string {
	ns, names, _ := strings.Cut(written, "/")
	var out []string
	for one := range strings.SplitSeq(names, "+") {
		out = append(out, ns+"/"+one)
	}
	return out
}

func (w *world) records() string {
	var out strings.Builder
	for _, r := range w.view.Records {
		st := r.Status.UserPodsEvictionStatus
		fmt.Fprintf(&out, "%s %s %s: %s\n", r.ID, r.Status.NodeQuarantined, st.Status, st.Message)
	}
	return out.String()
}
