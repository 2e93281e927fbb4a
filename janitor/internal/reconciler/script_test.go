package reconciler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
)

// TestScripts runs scripts of the life of maintenance objects, crashes included, against a real
// API server: of RebootNodes, and in the scripts of that folder of TerminateNodes.
//
//	node N [boot=B] [session=S] [taint]  make a Node, quarantined if S is given
//	object O node=N [session=S]          make an object of the kind
//	go O [crash=POINT]                   one pass, or until the point where the process dies
//	answer DELIVERY...                   what the plugin says to the next signals
//	plugin Up|NotUp|Gone|NoOpinion|mute  what it says to IsNodeReady
//	kind RebootNode|TerminateNode        what the objects after it are
//	boot N B, ready N, unready N, annotate N key=value, cordon N, uncordon N
//	remove N, replace N [boot=B] [same]  delete a Node, make it again as another or the same machine
//	claim N                              print who claims a Node
//	clock D, delete O, manual, sent O
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{world: newWorld(t)}
		if strings.Contains(path, "terminatenode") {
			s.turn(TerminateNode())
		}
		datadriven.RunTest(t, path, s.run)
	})
}

// turn makes the janitor one of another kind.
func (w *world) turn(k Kind) {
	w.kind = k
	w.restart()
}

type script struct {
	*world
	uids map[string]string // by uid: the object's name
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.t = t
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(d.Cmd+" "+args(d)+"\n"+d.Input), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		out.WriteString(s.do(words[0], words[1:]))
	}
	if out.Len() == 0 {
		return "ok"
	}
	return out.String()
}

func args(d *datadriven.TestData) string {
	var out []string
	for _, a := range d.CmdArgs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func (s *script) do(cmd string, words []string) string {
	name, option := "", map[string]string{}
	for i, word := range words {
		key, value, _ := strings.Cut(word, "=")
		option[key] = value
		if i == 0 {
			name = word
		}
	}
	switch cmd {
	case "node":
		s.makeNode(name, option)
	case "object":
		if s.uids == nil {
			s.uids = map[string]string{}
		}
		s.uids[string(s.create(name, option["node"], option["session"]).GetUID())] = name
	case "go":
		s.crash = option["crash"]
		return s.pass(name)
	case "claim":
		return s.claims(name)
	case "events":
		return s.events(name)
	case "answer":
		for _, word := range words {
			s.plugin.answers = append(s.plugin.answers, failure(word))
		}
	case "plugin":
		s.plugin.state, s.plugin.stateErr = provider.State(name), nil
		if name == "mute" {
			s.plugin.stateErr = errors.New("no answer")
		}
	case "kind":
		s.turn(map[string]Kind{"RebootNode": RebootNode(), "TerminateNode": TerminateNode()}[name])
	case "clock":
		step, err := time.ParseDuration(name)
		if err != nil {
			s.t.Fatal(err)
		}
		s.clock.Step(step)
	case "delete":
		s.delete(name)
	case "ttl":
		ttl, err := time.ParseDuration(name)
		if err != nil {
			s.t.Fatal(err)
		}
		s.policy.TTL = ttl
		s.restart()
	case "manual":
		s.policy.Manual = true
		s.restart()
	case "sent":
		object := s.object(name)
		condition(object, s.clock.Now(), signal("True", "DoneByHand", "ticket 7"))
		if err := s.objects.Status().Update(s.t.Context(), object); err != nil {
			s.t.Fatal(err)
		}
	default:
		s.touchNode(cmd, name, words, option)
	}
	return ""
}

func (s *script) makeNode(name string, option map[string]string) {
	s.addNode(localcluster.NodeSpec{
		Name: name, BootID: option["boot"], ProviderID: "cloud://" + option["machine"] + name, SystemUUID: option["machine"] + name,
	})
	if session := option["session"]; session != "" {
		s.quarantine(name, session)
	}
}

func (s *script) touchNode(cmd, name string, words []string, option map[string]string) {
	switch cmd {
	case "boot":
		s.boot(name, words[1])
	case "ready", "unready":
		s.setReady(name, cmd == "ready")
	case "cordon", "uncordon":
		s.cordon(name, cmd == "cordon")
	case "annotate":
		key, value, _ := strings.Cut(words[1], "=")
		full := map[string]string{
			"session": nodemark.SessionAnnotation, "session-unknown": nodemark.UnknownAnnotation, "repair": nodemark.RepairAnnotation,
		}[key]
		var v any
		if value != "" {
			v = value
		}
		s.annotate(name, map[string]any{full: v})
	case "label":
		key, value, _ := strings.Cut(words[1], "=")
		full := map[string]string{"managed": nodemark.ManagedLabel, "pool": "pool"}[key]
		s.patchNode(name, map[string]any{"metadata": map[string]any{"labels": map[string]any{full: value}}})
	case "remove", "replace":
		if err := s.cluster.DeleteNode(s.t.Context(), s.prefix+name); err != nil {
			s.t.Fatal(err)
		}
		if cmd == "replace" {
			s.makeNode(name, option)
		}
	default:
		s.t.Fatalf("no command %q", cmd)
	}
}

// pass runs one pass and returns what it did.
func (s *script) pass(name string) string {
	sent, asked := s.plugin.count(), len(s.plugin.requests)
	result, died, err := s.reconcile(name)
	var out strings.Builder
	for i, signal := range s.plugin.signals[sent:] {
		key := "key of " + s.uids[signal.Key]
		if s.uids[signal.Key] == "" {
			key = "a key of its own"
		}
		verb := map[string]string{"reboot": "signal", "terminate": "termination"}[s.plugin.verbs[sent+i]]
		fmt.Fprintf(&out, "%s to %s, %s\n", verb, strings.TrimPrefix(signal.Node, s.prefix), key)
	}
	for range s.plugin.requests[asked:] {
		out.WriteString("asked the plugin\n")
	}
	failed, isFailure := errors.AsType[*provider.Error](err)
	switch {
	case died:
		out.WriteString("died\n")
	case isFailure:
		fmt.Fprintf(&out, "retry: %s\n", failed.Delivery)
	case err != nil:
		s.t.Fatalf("pass over %s: %v", name, err)
	case result.RequeueAfter > 0:
		fmt.Fprintf(&out, "again in %s\n", result.RequeueAfter)
	}
	return out.String() + s.show(name)
}

// events prints the Events about a Node and about the objects of its name.
func (s *script) events(node string) string {
	if err := s.janitor.Events.Flush(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	list, err := s.cluster.Client().CoreV1().Events("default").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for _, e := range list.Items {
		name := strings.TrimPrefix(e.InvolvedObject.Name, s.prefix)
		if e.Source.Component == "nvsentinel-janitor" && name != e.InvolvedObject.Name && (name == node || name == "r"+node) {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s\n", e.InvolvedObject.Kind, e.Type, e.Reason, strings.ReplaceAll(e.Message, s.prefix, "")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// show prints an object and the claim on its Node.
func (s *script) show(name string) string {
	object := s.object(name)
	if object == nil {
		return name + ": gone\n"
	}
	var out strings.Builder
	st := object.Progress()
	fmt.Fprintf(&out, "%s:", name)
	for _, kind := range []string{"SignalSent", "NodeReady", "NodeTerminated", "ManualMode"} {
		if c := meta.FindStatusCondition(st.Conditions, kind); c != nil {
			fmt.Fprintf(&out, " %s=%s/%s", kind, c.Status, c.Reason)
		}
	}
	if boot := *object.BootID(); boot != "" {
		fmt.Fprintf(&out, " boot=%s", boot)
	}
	if r, ok := object.(*v1alpha1.RebootNode); ok && r.Status.ObservedBootID != "" {
		fmt.Fprintf(&out, "->%s", r.Status.ObservedBootID)
	}
	if st.Signals > 0 {
		fmt.Fprintf(&out, " signals=%d", st.Signals)
	}
	if st.CompletionTime != nil {
		out.WriteString(" complete")
	}
	if slices.Contains(object.GetFinalizers(), v1alpha1.ClaimFinalizer) {
		out.WriteString(" held")
	}
	out.WriteString("\n" + s.claims(strings.TrimPrefix(v1alpha1.NodeOf(object), s.prefix)))
	return out.String()
}

func (s *script) claims(node string) string {
	n, err := kube.ReadNode(s.t.Context(), s.cluster.Client(), s.prefix+node)
	if errors.Is(err, kube.ErrNodeDeleted) {
		return node + ": absent\n"
	}
	if err != nil {
		s.t.Fatal(err)
	}
	claim := n.Annotations[nodemark.RepairAnnotation]
	switch {
	case claim == "":
		return node + ": not claimed\n"
	case s.uids[claim] != "":
		return node + ": claimed by " + s.uids[claim] + "\n"
	}
	return node + ": claimed by " + claim + "\n"
}
