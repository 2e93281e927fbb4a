package gpureset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestScripts runs scripts of the life of GPUResets, crashes included, against a real API
// server.
//
//	node N boot=B [session=S] [without=SERVICE] [off=SERVICE]
//	                               make a Node with its GPU services: all labels "true",
//	                               but one that is absent and one that is "false"
//	object O node=N [session=S] [gpu=UUID]
//	go O [crash=POINT]             one pass, or until the point where the process dies
//	operate N [unready]            the GPU operator makes and removes the pods of a node
//	end O [failed=REASON]          the Job of an object succeeds or fails
//	remove-job O, taken O          the Job is removed; somebody else has its name
//	boot N B, ready N, unready N, label N SERVICE=VALUE, annotate N key=value
//	remove N, replace N boot=B     delete a Node, make it again as another machine
//	clock D, delete O, manual, by-hand O, ttl D
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Parallel()
		s := &script{world: newWorld(t), uids: map[string]string{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	*world
	uids map[string]string // by uid: the object's name
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.t = t
	first := d.Cmd
	for _, a := range d.CmdArgs {
		first += " " + a.String()
	}
	var out strings.Builder
	for line := range strings.SplitSeq(first+"\n"+d.Input, "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			out.WriteString(s.do(words[0], words[1:]))
		}
	}
	if out.Len() == 0 {
		return "ok"
	}
	return out.String()
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
		var gpus []string
		if option["gpu"] != "" {
			gpus = []string{option["gpu"]}
		}
		s.uids[string(s.create(name, option["node"], option["session"], gpus...).UID)] = name
	case "go":
		s.crash = option["crash"]
		return s.pass(name)
	case "clock":
		s.clock.Step(s.duration(name))
	case "ttl":
		s.policy.TTL = s.duration(name)
		s.restart()
	case "manual":
		s.policy.Manual = true
		s.restart()
	case "delete":
		if err := s.objects.Delete(s.t.Context(), s.object(name)); err != nil {
			s.t.Fatal(err)
		}
	case "by-hand":
		object := s.object(name)
		status{object, s.clock.Now()}.set(v1alpha1.ConditionResetJobCompleted, yes, "DoneByHand", "ticket 7")
		if err := s.objects.Status().Update(s.t.Context(), object); err != nil {
			s.t.Fatal(err)
		}
	case "operate":
		_, unready := option["unready"]
		s.operate(name, !unready)
	default:
		s.touch(cmd, name, words, option)
	}
	return ""
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *script) makeNode(name string, option map[string]string) {
	s.addNode(localcluster.NodeSpec{
		Name: name, BootID: option["boot"], ProviderID: "cloud://" + option["machine"] + name, SystemUUID: option["machine"] + name,
	})
	values := map[string]any{}
	for _, app := range GPUOperator("").Apps {
		switch strings.TrimPrefix(app.Label, "nvidia.com/gpu.deploy.") {
		case option["without"]:
		case option["off"]:
			values[app.Label] = "false"
		default:
			values[app.Label] = "true"
		}
	}
	s.label(name, values)
	s.operate(name, true)
	if session := option["session"]; session != "" {
		s.quarantine(name, session)
	}
}

// touch is what others do to Nodes and Jobs.
func (s *script) touch(cmd, name string, words []string, option map[string]string) {
	switch cmd {
	case "end":
		if reason, failed := option["failed"]; failed {
			s.end(name, batchv1.JobFailed, reason)
			return
		}
		s.end(name, batchv1.JobComplete, "CompletionsReached")
	case "remove-job":
		s.removeJob(name)
	case "taken":
		job := s.janitor.Tool.job(s.object(name))
		job.OwnerReferences = nil
		if _, err := s.cluster.Client().BatchV1().Jobs(s.namespace).Create(s.t.Context(), job, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	case "boot":
		s.patchNode(name, map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"bootID": words[1]}}}, "status")
	case "ready", "unready":
		status := map[string]string{"ready": "True", "unready": "False"}[cmd]
		s.patchNode(name, map[string]any{"status": map[string]any{
			"conditions": []map[string]any{{"type": "Ready", "status": status}},
		}}, "status")
	case "label", "annotate":
		s.mark(cmd, name, words[1])
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

// mark sets a label or an annotation by its short name; no value removes it.
func (s *script) mark(cmd, node, word string) {
	key, text, _ := strings.Cut(word, "=")
	var value any
	if text != "" {
		value = text
	}
	full := map[string]string{
		"session": nodemark.SessionAnnotation, "session-unknown": nodemark.UnknownAnnotation, "repair": nodemark.RepairAnnotation,
		"reset": nodemark.ResetAnnotation, "managed": nodemark.ManagedLabel, "pool": "pool",
	}[key]
	if full == "" {
		full = "nvidia.com/gpu.deploy." + key
	}
	if cmd == "label" {
		s.label(node, map[string]any{full: value})
		return
	}
	s.annotate(node, map[string]any{full: value})
}

// pass runs one pass and returns what it did.
func (s *script) pass(name string) string {
	result, died, err := s.reconcile(name)
	var out strings.Builder
	if job := s.job(name); job != nil && !s.created[job.UID] {
		s.created[job.UID] = true
		fmt.Fprintf(&out, "job of %s was created\n", name)
	}
	switch {
	case died:
		out.WriteString("died\n")
	case err != nil:
		s.t.Fatalf("pass over %s: %v", name, err)
	case result.RequeueAfter > 0:
		fmt.Fprintf(&out, "again in %s\n", result.RequeueAfter)
	}
	return out.String() + s.show(name)
}

// show prints an object and its Node.
func (s *script) show(name string) string {
	object := s.object(name)
	if object == nil {
		return name + ": gone\n" + s.showNode(s.lastNode(name))
	}
	var out strings.Builder
	st := object.Status
	fmt.Fprintf(&out, "%s: %s", name, st.Phase)
	for _, kind := range []string{
		"Ready", "ServicesTornDown", "ResetJobCreated", "ResetJobCompleted", "ServicesRestored", "Complete", "Terminating", "ManualMode", "SignalSent",
	} {
		if c := meta.FindStatusCondition(st.Conditions, kind); c != nil {
			fmt.Fprintf(&out, "\n  %s=%s/%s", kind, c.Status, c.Reason)
		}
	}
	if st.CompletionTime != nil {
		out.WriteString("\n  complete")
	}
	if slices.Contains(object.Finalizers, v1alpha1.ClaimFinalizer) {
		out.WriteString("\n  held")
	}
	return out.String() + "\n" + s.showNode(strings.TrimPrefix(object.Spec.NodeName, s.prefix))
}

// lastNode guesses the node of an object that is gone: scripts name it alike.
func (*script) lastNode(object string) string { return strings.TrimPrefix(object, "r") }

// showNode prints the claim and the labels of the services.
func (s *script) showNode(name string) string {
	node := s.node(name)
	if node == nil {
		return name + ": absent\n"
	}
	whose := func(uid string) string {
		if known := s.uids[uid]; known != "" {
			return known
		}
		return uid
	}
	out := name + ":"
	if claim := node.Annotations[nodemark.RepairAnnotation]; claim != "" {
		out += " claimed by " + whose(claim)
	}
	if down := downOf(node); down != "" {
		out += ", down by " + whose(down)
	}
	for _, app := range GPUOperator("").Apps {
		value, present := node.Labels[app.Label]
		if !present {
			value = "-"
		}
		out += " " + strings.TrimPrefix(app.Label, "nvidia.com/gpu.deploy.") + "=" + value
	}
	return out + "\n"
}
