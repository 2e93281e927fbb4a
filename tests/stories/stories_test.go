package stories

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	quarantine "github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestStories plays the scripts, and each of them again with a crash at every
// write. Every command is a list of things that happen
// at once; then the services work until they rest:
//
//	node [machine=M] [boot=B]   the Node object comes to be
//	boot B, node-deleted        the machine comes back under another boot; the object goes
//	ready yes|no                the Node's condition
//	kubelet dead|alive          which changes no condition by itself
//	claim UID                   a maintenance object claims the Node
//	fault ID ..., recovery ID ...  an event is stored; see event
//	pod NAMESPACE/NAME          is on the node; pod-ends takes it away
//	monitor starts              with an outbox of its own that numbers the events
//	disk imaged|restored|lost   the monitor starts again
//	deliver ID                  an event with late=yes comes now
//	uncordon [by=USER]          by a person, as the API server notes it; by=unknown where it does not
//	release                     as nvsentinel release asks for it
//	anyone-releases             anyone who uncordons the node releases it
//	analyze                     the analyzer counts the node's repairs
//	store backup|restored|emptied, check faulty|healthy
//	clock D, dry-run on|off, budget full|free, provider silent|answers
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var script []string
		w := newWorld(t, 0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			script = append(script, d.Input)
			return w.happen(d.Input)
		})
		if !t.Failed() {
			t.Run("a crash anywhere", func(t *testing.T) { crashAnywhere(t, script, w) })
		}
	})
}

// crashAnywhere plays a story again for every write in it, with the writer dead
// right before that write: it must end the same way, with no reboot more. (One
// less is right: a signal that was about to be sent counts as perhaps sent.)
func crashAnywhere(t *testing.T, script []string, reported *world) {
	for at := 1; at <= reported.writes; at++ {
		w := newWorld(t, at)
		for _, lines := range script {
			w.happen(lines)
		}
		if got, want := w.end(), reported.end(); got != want {
			t.Fatalf("after a crash before write %d of %d:\n%s\nwithout a crash:\n%s", at, reported.writes, got, want)
		}
		if len(w.signals) > len(reported.signals) {
			t.Fatalf("after a crash before write %d of %d: signals %v, without a crash %v", at, reported.writes, w.signals, reported.signals)
		}
	}
	if reported.writes == 0 {
		t.Fatal("nobody wrote anything")
	}
}

// happen lets things happen together, and the services answer.
func (w *world) happen(lines string) string {
	w.out.Reset()
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		words := strings.Fields(line)
		options := map[string]string{}
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			options[key] = value
		}
		name := ""
		if len(words) > 1 {
			name = words[1]
		}
		w.one(words[0], name, options)
	}
	w.settle()
	w.log("", "%s", w.snapshot())
	return w.out.String()
}

func (w *world) one(what, name string, options map[string]string) {
	switch what {
	case "node":
		w.appear(options)
	case "boot":
		w.node.Status.NodeInfo.BootID = name
	case "ready":
		status := map[string]corev1.ConditionStatus{"yes": corev1.ConditionTrue, "no": corev1.ConditionUnknown}[name]
		w.node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(w.now)}
	case "kubelet":
		w.kubelet = map[string]kubelet.State{"alive": kubelet.Alive, "dead": kubelet.Silent}[name]
	case "claim":
		w.node.Annotations[nodemark.RepairAnnotation] = name
	case "node-deleted":
		w.node, w.pods = nil, nil
	case "fault", "recovery":
		w.event(what, name, options)
	case "pod":
		namespace, pod, _ := strings.Cut(name, "/")
		w.pods = append(w.pods, newPod(namespace, pod))
	case "pod-ends":
		w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Namespace+"/"+p.Name == name })
	case "uncordon":
		w.node.Spec.Unschedulable = false
		nodemark.Annotate(w.node, nodemark.LiftedByAnnotation, strings.Replace(or(options["by"], "alice"), "unknown", "", 1))
	case "release":
		key, value := nodemark.Request{Session: nodemark.Session(w.node), By: "alice", Reason: "looked at it"}.Annotation()
		nodemark.Annotate(w.node, key, value)
	case "anyone-releases":
		w.anyone = true
	case "clock":
		step, err := time.ParseDuration(name)
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(step)
	case "dry-run":
		w.dryRun = name == "on"
	case "budget":
		w.holdReason = map[string]string{"full": "no room", "free": ""}[name]
	case "monitor":
		w.disk.start(w.t)
	case "disk":
		w.disk.change(w.t, name)
	case "deliver":
		w.append(w.late[name])
	case "machine-gone":
		w.machineDeleted = true
	case "store":
		w.store(name)
	case "check": // faulty or healthy, as the node's connector reports
		w.checks = map[string]quarantine.Check{"SysLogsXIDError": {Faulty: name == "faulty", Since: w.now}}
	case "provider":
		w.silent = name == "silent"
	case "analyze":
		w.analyze()
	default:
		w.t.Fatalf("unknown: %q", what)
	}
}

// store takes a backup of the records, restores it, or empties the store.
func (w *world) store(what string) {
	switch what {
	case "backup":
		w.backup = maps.Clone(w.records)
	case "restored":
		w.records = maps.Clone(w.backup)
	case "emptied":
		w.records = map[string]record.Record{}
	default:
		w.t.Fatalf("unknown: store %q", what)
	}
}

func (w *world) appear(options map[string]string) {
	w.uids++
	w.machineDeleted = false
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName, UID: types.UID("uid-" + strconv.Itoa(w.uids)), CreationTimestamp: metav1.NewTime(w.now),
		Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	n.Spec.ProviderID = or(options["machine"], "m1")
	n.Status.NodeInfo.BootID = or(options["boot"], "b1")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.node = n
}

func newPod(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}}
	p.Spec.NodeName = nodeName
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// event stores what a monitor sent:
//
//	fault f1 seq=1 boot=b1 code=79 gpu=GPU-1 action=RESTART_BM
//
// with agent=, epoch=, strategy=, late=yes and saw=nothing (the connector never saw
// its Node) where a story needs them.
func (w *world) event(what, id string, options map[string]string) {
	seq, err := strconv.ParseUint(or(options["seq"], "0"), 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	e := record.Event{
		ID: id, Agent: or(options["agent"], "syslog-health-monitor"), ComponentClass: "GPU", CheckName: or(options["check"], "SysLogsXIDError"),
		NodeName: nodeName, IsFatal: what == "fault", IsHealthy: what == "recovery", GeneratedTimestamp: w.now,
		RecommendedAction:  record.Action(or(options["action"], "NONE")),
		ProcessingStrategy: record.Strategy(or(options["strategy"], string(record.Process))), Metadata: map[string]string{},
	}
	if boot := options["boot"]; boot != "" {
		e.Metadata[record.MetadataBootID] = boot
	}
	if code := options["code"]; code != "" {
		e.ErrorCode = []string{code}
	}
	if gpu := options["gpu"]; gpu != "" {
		e.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: gpu}}
	}
	r := record.Record{ID: id, CreatedAt: w.now, Event: e}
	if seq > 0 {
		r.Seq, r.SeqEpoch = seq, or(options["epoch"], "e1")
		r.Event.Metadata[record.MetadataSeqRuns] = "run"
	} else if w.disk.outbox != nil {
		w.disk.number(w.t, &r)
	}
	switch {
	case options["machine"] != "":
		r.Node = record.NodeIdentity{ProviderID: options["machine"]}
	case options["saw"] != "nothing" && w.node != nil:
		r.Node = kube.NodeIdentity(w.node)
	}
	if options["late"] == "yes" {
		w.late[id] = r
		return
	}
	w.append(r)
}

func (w *world) append(r record.Record) {
	r.Append = int64(len(w.records) + 1)
	w.records[r.ID] = r
}

// snapshot is the output of `kubectl get node` and the records of the store.
func (w *world) snapshot() string {
	if w.node == nil {
		return "no node; open: " + w.open()
	}
	state := "schedulable"
	if w.node.Spec.Unschedulable {
		state = "cordoned"
	}
	if s := w.node.Labels[nodemark.StateLabel]; s != "" {
		state += " " + s
	}
	if w.node.Annotations[nodemark.RepairAnnotation] != "" {
		state += " claimed"
	}
	if unknown := w.node.Annotations[nodemark.UnknownAnnotation]; unknown != "" {
		state += " unknown: " + unknown
	}
	return state + "; open: " + w.open()
}

func (w *world) open() string {
	var ids []string
	for _, r := range w.list(record.OpenOfNode(nodeName)) {
		ids = append(ids, r.ID)
	}
	return orNone(strings.Join(ids, " "))
}

// end is everything that must not depend on who died when.
func (w *world) end() string {
	var b strings.Builder
	b.WriteString(w.snapshot() + "\n")
	for _, r := range w.list(record.Selector{}) {
		s := r.Status
		fmt.Fprintf(&b, "%s: %s %s drain=%s remediated=%s%s", r.ID, r.Reason(), s.NodeQuarantined, s.UserPodsEvictionStatus.Status, record.Remediated(s), cleared(r))
		if s.Remediation != nil {
			fmt.Fprintf(&b, " %s/%s objects=%d", s.Remediation.Outcome, s.Remediation.Reason, len(s.Remediation.Attempts))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func cleared(r record.Record) string {
	by := ""
	for _, f := range r.Status.Faults {
		if f.ClearedTimestamp != nil {
			by = ", cleared by " + f.ClearedBy
		}
	}
	return by
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func orNone(s string) string { return or(s, "none") }
