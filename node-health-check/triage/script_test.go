package triage_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// TestScripts plays the life of checks and their nodes, pass by pass.
//
//	check min=N|max=N [threshold=N] [delay=D] [reboot[=D]] [terminate=D]
//	                        a check; reboot alone waits for ever
//	nodes N [control-plane] healthy nodes n-00 and so on (cp-00 of the control plane)
//	fall N.., heal N..      their Ready becomes Unknown an hour ago, True now
//	doubt N..               their Ready becomes False now
//	succeeded N STATUS      the condition of the node's last remediation
//	pause TEXT, resume, delay D, threshold N, dry, problem REASON, brake TEXT
//	delete N                somebody deletes the node's remediations
//	foreign N               somebody makes a RebootNode for the node
//	expected N              the remediator expects the node to go for good
//	label N KEY=VALUE, annotate N KEY, drop N (the node is deleted), stick, gone
//	lease N HOLDER D        somebody's lease, renewed now
//	fail VERB, work         acts of the verb fail; all work again
//	pass [D]                D later, a pass; and what came of it
//
// A range n-00..n-04 stands for its nodes. What was done begins with -, a warning with !,
// another Event with i.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct{ *world }

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if d.Cmd != "do" {
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
		words := strings.Fields(line)
		if words[0] == "pass" {
			if len(words) > 1 {
				s.now = s.now.Add(duration(t, words[1]))
			}
			s.pass()
			out.WriteString(s.describe())
			continue
		}
		s.order(t, words)
	}
	return out.String()
}

// order carries out one line.
func (s *script) order(t *testing.T, words []string) {
	t.Helper()
	args := words[1:]
	switch words[0] {
	case "check":
		s.check(t, args)
	case "nodes":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if len(args) > 1 {
				s.node(fmt.Sprintf("cp-%02d", i)).Labels["node-role.kubernetes.io/control-plane"] = ""
			} else {
				s.node(fmt.Sprintf("n-%02d", i))
			}
		}
	case "fall", "heal", "doubt":
		for _, name := range names(args) {
			switch words[0] {
			case "fall":
				s.fall(name)
			case "heal":
				s.recover(name)
			default:
				s.ready(name, corev1.ConditionFalse, 0)
			}
		}
	case "succeeded":
		of := s.of(args[0])
		of[len(of)-1].Succeeded = args[1]
	case "label":
		key, value, _ := strings.Cut(args[1], "=")
		s.find(args[0]).Labels[key] = value
		if key == "state" {
			s.find(args[0]).Labels[nodemark.StateLabel] = value
		}
	case "annotate":
		s.find(args[0]).Annotations[args[1]] = ""
	case "drop":
		s.view.Nodes = slices.DeleteFunc(s.view.Nodes, func(n *corev1.Node) bool { return n.Name == args[0] })
	case "delete":
		s.view.Remediations = slices.DeleteFunc(s.view.Remediations, func(r triage.Remediation) bool { return r.Node == args[0] })
	case "foreign":
		s.view.Remediations = append(s.view.Remediations, triage.Remediation{Kind: rebootKind, Name: args[0], UID: "foreign-" + args[0], Node: args[0], Created: s.now})
	case "expected":
		s.of(args[0])[0].DeletionExpected = true
	case "lease":
		s.view.Leases[args[0]] = triage.Lease{Holder: args[1], Acquired: s.now, Renewed: s.now, Duration: duration(t, args[2])}
	default:
		s.setting(t, words[0], args)
	}
}

// setting changes the check or what is around it.
func (s *script) setting(t *testing.T, word string, args []string) {
	t.Helper()
	spec := &s.view.Check.Spec
	switch word {
	case "pause":
		spec.PauseRequests = append(spec.PauseRequests, strings.Join(args, " "))
	case "resume":
		spec.PauseRequests = nil
	case "delay":
		spec.HealthyDelay = &metav1.Duration{Duration: duration(t, args[0])}
	case "dry":
		s.view.DryRun = true
	case "brake":
		s.view.Pause = strings.Join(args, " ")
	case "problem":
		s.view.Problem = nil
		if len(args) > 0 {
			s.view.Problem = &triage.Problem{Reason: args[0], Message: "not there", Retry: true}
		}
	case "stick":
		s.stick = true
	case "gone":
		s.finishDeletions()
	case "fail":
		s.fail = map[triage.Verb]bool{triage.Verb(args[0]): true}
	case "work":
		s.fail = nil
	default:
		t.Fatalf("unknown order %s", word)
	}
}

// check begins a new world with a check.
func (s *script) check(t *testing.T, args []string) {
	t.Helper()
	var steps []triage.Step
	s.world = newWorld(0, nil)
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "min":
			s.view.Check.Spec.MinHealthy = amount(value)
		case "max":
			s.view.Check.Spec.MinHealthy, s.view.Check.Spec.MaxUnhealthy = nil, amount(value)
		case "threshold":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			s.view.Check.Spec.StormRecoveryThreshold = new(int32(n))
		case "delay":
			s.setting(t, "delay", []string{value})
		case "reboot":
			steps = append(steps, step(rebootKind, duration(t, value)))
		case "terminate":
			steps = append(steps, step(terminateKind, duration(t, value)))
		default:
			t.Fatalf("unknown argument %s", arg)
		}
	}
	if len(steps) > 0 {
		s.view.Steps = steps
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// names spells ranges out.
func names(args []string) []string {
	var out []string
	for _, arg := range args {
		first, last, ranged := strings.Cut(arg, "..")
		if !ranged {
			out = append(out, arg)
			continue
		}
		var from, to int
		prefix := first[:len(first)-2]
		if _, err := fmt.Sscanf(first[len(prefix):]+" "+last[len(prefix):], "%d %d", &from, &to); err != nil {
			panic(err)
		}
		for i := from; i <= to; i++ {
			out = append(out, fmt.Sprintf("%s%02d", prefix, i))
		}
	}
	return out
}

// describe returns the result of a pass as text.
func (s *script) describe() string {
	var out strings.Builder
	status := s.view.Check.Status
	remediated := 0
	for _, u := range status.UnhealthyNodes {
		if len(u.Remediations) > 0 {
			remediated++
		}
	}
	fmt.Fprintf(&out, "%d/%d healthy, %d listed, %d with remediations", *status.HealthyNodes, *status.ObservedNodes, len(status.UnhealthyNodes), remediated)
	if status.StormRecoveryActive != nil {
		fmt.Fprintf(&out, ", storm %t", *status.StormRecoveryActive)
	}
	if s.plan.Again > 0 {
		fmt.Fprintf(&out, ", again in %s", s.plan.Again)
	}
	fmt.Fprintf(&out, "\n  %s: %s\n", status.Phase, status.Reason)
	for _, u := range status.UnhealthyNodes {
		if line := flags(u); line != "" {
			fmt.Fprintf(&out, "  %s:%s\n", u.Name, line)
		}
	}
	for _, line := range s.did {
		fmt.Fprintf(&out, "  - %s\n", line)
	}
	for _, n := range s.notices {
		mark := "i"
		if n.Warning {
			mark = "!"
		}
		if !slices.Contains([]string{triage.NoticeDetected, triage.NoticeCreated, triage.NoticeRemoved}, n.Reason) {
			fmt.Fprintf(&out, "  %s %s: %s\n", mark, n.Reason, n.Message)
		}
	}
	return out.String()
}

// flags are what an entry shows besides its remediations.
func flags(u v1alpha1.UnhealthyNode) string {
	line := ""
	for _, r := range u.Remediations {
		if r.TimedOut != nil {
			line += " " + r.Resource.Kind + " is over"
		}
	}
	if u.ConditionsHealthyTimestamp != nil {
		line += " healthy since " + u.ConditionsHealthyTimestamp.UTC().Format(time.TimeOnly)
	}
	if u.HealthyDelayed != nil && *u.HealthyDelayed {
		line += " delayed"
	}
	if u.Waiting != "" {
		line += " waits: " + u.Waiting
	}
	return line
}
