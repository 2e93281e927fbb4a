package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// rig is a plugin process and one node.
type rig struct {
	*process
	t      *testing.T
	node   string
	before string
	client v1.CSPPluginServiceClient
}

func newRig(t *testing.T, extra ...string) *rig {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	r := &rig{t: t, node: cluster.Namespace(t), process: newProcess(t, cluster, extra...)}
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: r.node}); err != nil {
		t.Fatal(err)
	}
	r.before = bootID(t, cluster, r.node)
	r.client = v1.NewCSPPluginServiceClient(r.start())
	return r
}

func (r *rig) again() { r.t.Helper(); r.client = v1.NewCSPPluginServiceClient(r.restart()) }

func (r *rig) annotate(key string, value any) {
	r.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err == nil {
		_, err = r.cluster.Client().CoreV1().Nodes().Patch(r.t.Context(), r.node, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) send(ctx context.Context, key string) (string, error) {
	resp, err := r.client.SendRebootSignal(ctx, &v1.SendRebootSignalRequest{NodeName: r.node, IdempotencyKey: key}, grpc.WaitForReady(true))
	return resp.GetRequestId(), err
}

func (r *rig) mustSend(key string) string {
	r.t.Helper()
	id, err := r.send(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// give sends a signal whose caller gives up when effect stands in the journal. As
// the janitor does, it sends the key again when the answer is to do so.
func (r *rig) give(key string, effect Effect) error {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	answer := make(chan error, 1)
	send := func() { _, err := r.send(ctx, key); answer <- err }
	go send()
	r.until(string(effect), func() bool {
		select {
		case err := <-answer:
			if c := status.Code(err); c != codes.Unavailable && c != codes.Aborted {
				r.t.Fatalf("answer %v before %s", err, effect)
			}
			r.t.Logf("sent again: %v", err)
			go send()
		default:
		}
		return strings.HasSuffix(r.effects(), string(effect))
	})
	cancel()
	return <-answer
}

func (r *rig) ready() bool {
	r.t.Helper()
	resp, err := r.client.IsNodeReady(r.t.Context(), &v1.IsNodeReadyRequest{NodeName: r.node}, grpc.WaitForReady(true))
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.GetIsReady()
}

func (r *rig) effects() string {
	r.t.Helper()
	var out []string
	if _, err := os.Stat(r.journal()); err != nil {
		return ""
	}
	for _, e := range r.entries(r.t) {
		out = append(out, string(e.Effect))
	}
	return strings.Join(out, " ")
}

// await waits until the last entry of the journal has this effect.
func (r *rig) await(effect Effect) {
	r.t.Helper()
	r.until(string(effect), func() bool { return strings.HasSuffix(r.effects(), string(effect)) })
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			r.t.Fatalf("%s: not in time; books: %s", what, r.effects())
		case <-tick.C:
		}
	}
}

func (r *rig) wantEffects(want string) {
	r.t.Helper()
	if got := r.effects(); got != want {
		r.t.Errorf("books say %q, want %q", got, want)
	}
}

func (r *rig) wantRebooted(want bool) {
	r.t.Helper()
	if got := bootID(r.t, r.cluster, r.node) != r.before; got != want {
		r.t.Errorf("the boot id changed: %v, want %v", got, want)
	}
}

func TestFail(t *testing.T) {
	r := newRig(t, "--reboot-time", "1ms")
	r.annotate(FaultAnnotation, "fail=ResourceExhausted")
	if _, err := r.send(t.Context(), "k"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("answer %v, want ResourceExhausted", err)
	}
	r.wantEffects("failed")
	r.wantRebooted(false)
	r.annotate(FaultAnnotation, nil)
	r.mustSend("k")
	r.await(Completed)
	r.wantRebooted(true)
}

func TestUnknownFaultIsNotAReboot(t *testing.T) {
	r := newRig(t)
	for _, fault := range []string{"fail", "fail=Sometimes", "fail=OK", "lie=Internal", "explode"} {
		r.annotate(FaultAnnotation, fault)
		if _, err := r.send(t.Context(), "k"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("fault %q: %v, want FailedPrecondition", fault, err)
		}
	}
	r.wantEffects("")
}

func TestHang(t *testing.T) {
	r := newRig(t, "--reboot-time", "1ms")
	r.annotate(FaultAnnotation, "hang")
	if err := r.give("k", Hung); status.Code(err) != codes.Canceled {
		t.Errorf("answer %v, want none", err)
	}
	r.wantRebooted(false)
	r.annotate(FaultAnnotation, nil)
	r.mustSend("k")
	r.await(Completed)
	r.wantEffects("hung accepted powered-off rebooted completed")
}

func TestMute(t *testing.T) {
	r := newRig(t, "--reboot-time", "1ms")
	r.annotate(FaultAnnotation, "mute")
	if err := r.give("k", Completed); status.Code(err) != codes.Canceled {
		t.Errorf("answer %v, want none", err)
	}
	r.wantRebooted(true)
	r.annotate(FaultAnnotation, nil)
	r.mustSend("k")
	r.wantEffects("accepted powered-off rebooted completed duplicate")
}

func TestLie(t *testing.T) {
	r := newRig(t)
	r.annotate(FaultAnnotation, "lie")
	first := r.mustSend("k")
	if !r.ready() {
		t.Error("a liar says that the node is not ready")
	}
	r.wantRebooted(false)
	r.again()
	if second := r.mustSend("k"); second != first {
		t.Errorf("request ids %s and %s", first, second)
	}
	r.wantEffects("lied duplicate")
}

func TestStallEndsWithTheNextReboot(t *testing.T) {
	r := newRig(t, "--reboot-time", "1ms")
	r.annotate(FaultAnnotation, "stall")
	r.mustSend("k1")
	r.await(PoweredOff)
	r.again()
	if r.ready() {
		t.Error("a stalled machine is ready")
	}
	r.wantRebooted(false)
	r.annotate(FaultAnnotation, nil)
	r.mustSend("k2")
	r.await(Completed)
	r.wantEffects("accepted powered-off accepted superseded powered-off rebooted completed")
	r.wantRebooted(true)
	r.again()
	if !r.ready() {
		t.Error("after the second reboot the machine is not ready")
	}
}

func TestFaultFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "faults.json")
	r := newRig(t, "--faults", file, "--reboot-time", "1ms")
	want := func(text string, code codes.Code) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.send(t.Context(), "k"); status.Code(err) != code {
			t.Errorf("with %s: %v, want %s", text, err, code)
		}
	}
	want(`{"*":"fail=Unavailable"}`, codes.Unavailable)
	want(fmt.Sprintf(`{"*":"fail=Unavailable",%q:"fail=Aborted"}`, r.node), codes.Aborted)
	want(`{`, codes.FailedPrecondition)
	want(`{"other":"fail=Unavailable"}`, codes.OK)
}

func TestKilledInMidReboot(t *testing.T) {
	for _, effect := range []Effect{Accepted, PoweredOff, Rebooted} {
		t.Run(string(effect), func(t *testing.T) {
			r := newRig(t, "--reboot-time", "300ms")
			r.mustSend("k")
			r.until(string(effect), func() bool { return strings.Contains(r.effects(), string(effect)) })
			r.kill()
			r.again()
			r.await(Completed)
			r.wantEffects("accepted powered-off rebooted completed")
			r.wantRebooted(true)
			b, err := os.ReadFile(filepath.Join(r.dir, "machines", r.node, "boot_id"))
			if now := bootID(t, r.cluster, r.node); err != nil || strings.TrimSpace(string(b)) != now {
				t.Errorf("the machine's boot_id is %q (%v), its Node shows %s", b, err, now)
			}
		})
	}
}

// blockReboots is a hook that keeps machines down until release is called.
func blockReboots(t *testing.T) (hook string, release func()) {
	t.Helper()
	dir := t.TempDir()
	hook = filepath.Join(dir, "hook")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nwhile [ ! -e "+dir+"/released ]; do sleep 0.05; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return hook, func() {
		if err := os.WriteFile(filepath.Join(dir, "released"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

func TestNodeDeletedInMidReboot(t *testing.T) {
	hook, release := blockReboots(t)
	r := newRig(t, "--reboot-time", "1ms", "--reboot-hook", hook)
	t.Cleanup(release)
	r.mustSend("k")
	r.await(PoweredOff)
	if err := r.cluster.DeleteNode(t.Context(), r.node); err != nil {
		t.Fatal(err)
	}
	release()
	r.await(NodeGone)
	r.wantEffects("accepted powered-off node-gone")
}

func TestRealNodeIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.annotate("kwok.x-k8s.io/node", nil)
	if _, err := r.send(t.Context(), "k"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a node that is not simulated: %v, want FailedPrecondition", err)
	}
	r.wantEffects("")
}

// The hook runs when the machine's file shows the new boot and its Node still
// the old one; a hook that fails does not stop the reboot.
func TestHook(t *testing.T) {
	dir := t.TempDir()
	hook, seen := filepath.Join(dir, "hook"), filepath.Join(dir, "seen")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho \"$1 $2\" >>"+seen+"\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, "--reboot-time", "1ms", "--reboot-hook", hook)
	r.mustSend("k")
	r.await(Completed)
	b, err := os.ReadFile(seen)
	if want := r.node + " " + bootID(t, r.cluster, r.node) + "\n"; err != nil || string(b) != want {
		t.Errorf("the hook got %q (%v), want %q", b, err, want)
	}
}

// On a cluster that simulates nodes, the node goes down and comes back, and
// nothing puts the old boot id back.
func TestOnASimulatedNode(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{Controllers: true, Nodes: 1})
	hook, release := blockReboots(t)
	r := &rig{t: t, node: "gpu-0", process: newProcess(t, cluster, "--reboot-time", "1ms", "--reboot-hook", hook)}
	t.Cleanup(release)
	r.before = bootID(t, cluster, r.node)
	r.client = v1.NewCSPPluginServiceClient(r.start())
	ready := func() corev1.ConditionStatus {
		n, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), r.node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status
			}
		}
		return ""
	}
	r.mustSend("k")
	r.until("not ready", func() bool { return ready() == corev1.ConditionFalse })
	r.wantRebooted(false)
	release()
	r.until("ready", func() bool { return ready() == corev1.ConditionTrue })
	r.wantRebooted(true)
	r.await(Completed)
}

// A machine that was terminated is gone for good, also after a restart; one that
// comes later under its name is another one.
func TestTerminatedMachine(t *testing.T) {
	r := newRig(t, "--reboot-time", "50ms")
	give := func() (string, error) {
		resp, err := r.client.SendTerminateSignal(t.Context(), &v1.SendTerminateSignalRequest{NodeName: r.node, IdempotencyKey: "k"}, grpc.WaitForReady(true))
		return resp.GetRequestId(), err
	}
	ask := func() codes.Code {
		_, err := r.client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: r.node}, grpc.WaitForReady(true))
		return status.Code(err)
	}
	first, err := give()
	if err != nil {
		t.Fatal(err)
	}
	r.again() // in the middle of it, or after it
	deadline := time.After(2 * time.Minute)
	for ask() != codes.NotFound {
		select {
		case <-deadline:
			t.Fatal("the machine is still there")
		case <-time.After(10 * time.Millisecond):
		}
	}
	r.again()
	if got := ask(); got != codes.NotFound {
		t.Errorf("after a restart: %s, want NotFound", got)
	}
	if again, err := give(); err != nil || again != first {
		t.Errorf("the key again: %q, %v; want %q", again, err, first)
	}
	if _, err := r.send(t.Context(), "other"); status.Code(err) != codes.NotFound {
		t.Errorf("a reboot: %v, want NotFound", err)
	}
	if err := r.cluster.DeleteNode(t.Context(), r.node); err != nil {
		t.Fatal(err)
	}
	if again, err := give(); err != nil || again != first {
		t.Errorf("the key without the Node: %q, %v; want %q", again, err, first)
	}
	if _, err := r.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: r.node}); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != codes.OK {
		t.Errorf("another machine under the name: %s, want OK", got)
	}
	terminations := 0
	for _, e := range r.entries(t) {
		if e.Effect == Terminated {
			terminations++
		}
	}
	if terminations != 1 {
		t.Errorf("%d terminations in the books, want 1", terminations)
	}
}
