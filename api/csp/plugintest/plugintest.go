// Package plugintest is what every provider plugin has to pass: the promises of
// CSPPluginService that the janitor relies on, tried over a real connection.
package plugintest

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// Bench is a running plugin with two machines that it may reboot.
type Bench struct {
	// Conn is connected to the plugin.
	Conn grpc.ClientConnInterface
	// Node and Other are the names of the machines; Missing is no machine.
	Node, Other, Missing string
	// BootID is the boot id that a machine shows now.
	BootID func(t *testing.T, node string) string
	// Reboots counts how often a machine was rebooted so far.
	Reboots func(t *testing.T, node string) int
	// Claim adds a Node under another name, as a kubelet does that wants the machine of a
	// node: with everything that a kubelet writes of its own Node (spec.providerID,
	// status.addresses, status.nodeInfo, labels) as that machine has it; and returns its
	// name. Nil for a plugin that reads nothing of a Node but its name.
	Claim func(t *testing.T, node string) (claimant string)
	// Restart ends the plugin abruptly and starts it again with the memory it
	// has; the new connection is returned. Nil if the provider itself remembers.
	Restart func(t *testing.T) grpc.ClientConnInterface
	// RebootTimeout is how long a reboot may take; 0 means one minute.
	RebootTimeout time.Duration
}

// Run tries everything; open makes a fresh bench for each promise.
func Run(t *testing.T, open func(t *testing.T) *Bench) {
	t.Helper()
	for _, promise := range []struct {
		name string
		try  func(t *testing.T, b *bench)
	}{
		{"health is served", health},
		{"a reboot changes the boot id once", reboots},
		{"not ready until the reboot is over", notReadyMeanwhile},
		{"a key is executed once", sameKey},
		{"a key is executed once when asked at once", sameKeyAtOnce},
		{"a key is still known after the reboot", sameKeyLater},
		{"another key is another reboot", otherKey},
		{"a key belongs to one machine", keyOfAnother},
		{"no key is no repetition", noKey},
		{"machines are independent", independent},
		{"a missing machine is refused", missing},
		{"an empty name is refused", emptyName},
		{"a restart forgets nothing", restart},
		{"a node does not get a machine by claiming it", claimed},
		{"a claimed machine's own node is repaired", repairedAllTheSame},
		{"a termination is executed once and ends in NotFound", terminate},
		{"a missing machine is not terminated", terminateMissing},
	} {
		t.Run(promise.name, func(t *testing.T) {
			b := &bench{Bench: open(t)}
			if b.RebootTimeout == 0 {
				b.RebootTimeout = time.Minute
			}
			b.connect(b.Conn)
			promise.try(t, b)
		})
	}
}

type bench struct {
	*Bench
	client v1.CSPPluginServiceClient
}

func (b *bench) connect(conn grpc.ClientConnInterface) {
	b.Conn, b.client = conn, v1.NewCSPPluginServiceClient(conn)
}

// send sends a signal that has to be taken.
func (b *bench) send(t *testing.T, node, key string) string {
	t.Helper()
	resp, err := b.client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: node, IdempotencyKey: key}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("signal to %s with key %q: %v", node, key, err)
	}
	if resp.GetRequestId() == "" {
		t.Errorf("signal to %s with key %q: the request id is empty", node, key)
	}
	return resp.GetRequestId()
}

func (b *bench) ready(t *testing.T, node, request string) bool {
	t.Helper()
	resp, err := b.client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: node, RequestId: request})
	if err != nil {
		t.Fatalf("asking about %s: %v", node, err)
	}
	return resp.GetIsReady()
}

// await waits until a machine is ready again under another boot id.
func (b *bench) await(t *testing.T, node, request, before string) {
	t.Helper()
	b.eventually(t, "machine "+node+" ready under another boot id", func() bool {
		return b.ready(t, node, request) && b.BootID(t, node) != before
	})
}

func (b *bench) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), b.RebootTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s", what, b.RebootTimeout)
		case <-tick.C:
		}
	}
}

func (b *bench) wantReboots(t *testing.T, node string, want int) {
	t.Helper()
	if got := b.Reboots(t, node); got != want {
		t.Errorf("machine %s was rebooted %d times, want %d", node, got, want)
	}
}

func health(t *testing.T, b *bench) {
	got, err := healthv1.NewHealthClient(b.Conn).Check(t.Context(), &healthv1.HealthCheckRequest{
		Service: v1.CSPPluginService_ServiceDesc.ServiceName,
	}, grpc.WaitForReady(true))
	if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health is %s, %v; want SERVING", got.GetStatus(), err)
	}
}

func reboots(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	request := b.send(t, b.Node, "k1")
	b.await(t, b.Node, request, before)
	b.wantReboots(t, b.Node, 1)
	after := b.BootID(t, b.Node)
	if !b.ready(t, b.Node, "") {
		t.Error("asked without a request id, the machine is not ready")
	}
	if now := b.BootID(t, b.Node); now != after {
		t.Errorf("the boot id went on from %s to %s", after, now)
	}
}

// notReadyMeanwhile: ready is never reported while the old boot id shows.
func notReadyMeanwhile(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	request := b.send(t, b.Node, "k1")
	b.eventually(t, "the reboot", func() bool {
		ready := b.ready(t, b.Node, request)
		if ready && b.BootID(t, b.Node) == before {
			t.Fatal("the plugin says ready, but the machine shows the old boot id")
		}
		return ready
	})
}

func sameKey(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	first := b.send(t, b.Node, "k1")
	if second := b.send(t, b.Node, "k1"); second != first {
		t.Errorf("the same key got request ids %s and %s", first, second)
	}
	b.await(t, b.Node, first, before)
	b.wantReboots(t, b.Node, 1)
}

func sameKeyAtOnce(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	ids := make([]string, 8)
	var calls sync.WaitGroup
	for i := range ids {
		calls.Go(func() {
			resp, err := b.client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: b.Node, IdempotencyKey: "k1"}, grpc.WaitForReady(true))
			if err != nil {
				t.Errorf("signal %d: %v", i, err)
				return
			}
			ids[i] = resp.GetRequestId()
		})
	}
	calls.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("the same key got request ids %v", ids)
			break
		}
	}
	b.await(t, b.Node, ids[0], before)
	b.wantReboots(t, b.Node, 1)
}

func sameKeyLater(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	first := b.send(t, b.Node, "k1")
	b.await(t, b.Node, first, before)
	after := b.BootID(t, b.Node)
	if second := b.send(t, b.Node, "k1"); second != first {
		t.Errorf("the same key got request ids %s and %s", first, second)
	}
	// A further reboot would have come before this one of another machine.
	other := b.BootID(t, b.Other)
	b.await(t, b.Other, b.send(t, b.Other, "k2"), other)
	b.wantReboots(t, b.Node, 1)
	if now := b.BootID(t, b.Node); now != after {
		t.Errorf("the boot id went on from %s to %s", after, now)
	}
}

func otherKey(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	first := b.send(t, b.Node, "k1")
	b.await(t, b.Node, first, before)
	before = b.BootID(t, b.Node)
	second := b.send(t, b.Node, "k2")
	if second == first {
		t.Errorf("two keys got one request id %s", first)
	}
	b.await(t, b.Node, second, before)
	b.wantReboots(t, b.Node, 2)
}

func keyOfAnother(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	request := b.send(t, b.Node, "k1")
	_, err := b.client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: b.Other, IdempotencyKey: "k1"})
	wantRefusal(t, "a key of another machine", err)
	b.await(t, b.Node, request, before)
	b.wantReboots(t, b.Other, 0)
}

func noKey(t *testing.T, b *bench) {
	before := b.BootID(t, b.Node)
	b.await(t, b.Node, b.send(t, b.Node, ""), before)
	before = b.BootID(t, b.Node)
	b.await(t, b.Node, b.send(t, b.Node, ""), before)
	b.wantReboots(t, b.Node, 2)
}

func independent(t *testing.T, b *bench) {
	before, other := b.BootID(t, b.Node), b.BootID(t, b.Other)
	b.await(t, b.Node, b.send(t, b.Node, "k1"), before)
	if b.BootID(t, b.Other) != other {
		t.Error("the reboot of one machine changed the other's boot id")
	}
	b.wantReboots(t, b.Other, 0)
	if !b.ready(t, b.Other, "") {
		t.Error("the other machine is not ready")
	}
}

// wantRefusal wants an answer that means: nothing was done, do not ask again.
func wantRefusal(t *testing.T, what string, err error) {
	t.Helper()
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition:
	default:
		t.Errorf("%s: %v, want InvalidArgument, NotFound or FailedPrecondition", what, err)
	}
}

func missing(t *testing.T, b *bench) {
	_, err := b.client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: b.Missing, IdempotencyKey: "k1"}, grpc.WaitForReady(true))
	wantRefusal(t, "a signal to a missing machine", err)
	_, err = b.client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: b.Missing})
	wantRefusal(t, "a question about a missing machine", err)
}

func emptyName(t *testing.T, b *bench) {
	_, err := b.client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{IdempotencyKey: "k1"}, grpc.WaitForReady(true))
	wantRefusal(t, "a signal to nobody", err)
}

func restart(t *testing.T, b *bench) {
	if b.Restart == nil {
		sameKeyLater(t, b)
		return
	}
	before := b.BootID(t, b.Node)
	first := b.send(t, b.Node, "k1")
	b.connect(b.Restart(t))
	if second := b.send(t, b.Node, "k1"); second != first {
		t.Errorf("after a restart the same key got request id %s, before it %s", second, first)
	}
	b.await(t, b.Node, first, before)
	b.connect(b.Restart(t))
	if third := b.send(t, b.Node, "k1"); third != first {
		t.Errorf("after the reboot and a restart the same key got request id %s, before it %s", third, first)
	}
	b.wantReboots(t, b.Node, 1)
}
