package plugintest

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// give asks for a termination under one key; a provider that cannot do it returns Unimplemented.
func (b *bench) give(t *testing.T, node string) (request string, err error) {
	t.Helper()
	resp, err := b.client.SendTerminateSignal(t.Context(), &v1.SendTerminateSignalRequest{NodeName: node, IdempotencyKey: "t1"}, grpc.WaitForReady(true))
	return resp.GetRequestId(), err
}

// terminate: once per key, and then the machine is not found, which is what the
// janitor takes for the proof that it is gone.
func terminate(t *testing.T, b *bench) {
	first, err := b.give(t, b.Node)
	if status.Code(err) == codes.Unimplemented {
		t.Log("this provider terminates nothing")
		return
	}
	if err != nil || first == "" {
		t.Fatalf("termination: %q, %v; want a request id", first, err)
	}
	b.eventually(t, "machine "+b.Node+" not found", func() bool {
		_, err := b.client.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: b.Node, RequestId: first})
		if c := status.Code(err); c != codes.OK && c != codes.NotFound {
			t.Fatalf("asking about a machine that is being terminated: %v, want OK or NotFound", err)
		}
		return err != nil
	})
	if again, err := b.give(t, b.Node); err != nil || again != first {
		t.Errorf("the same key after the end: %q, %v; want %q", again, err, first)
	}
	_, err = b.client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: b.Node, IdempotencyKey: "k1"})
	wantRefusal(t, "a reboot of a terminated machine", err)
	_, err = b.give(t, b.Other)
	wantRefusal(t, "a key of another machine", err)
	if !b.ready(t, b.Other, "") {
		t.Error("the other machine is not ready")
	}
}

func terminateMissing(t *testing.T, b *bench) {
	// Unimplemented is a refusal too.
	for _, node := range []string{b.Missing, ""} {
		if _, err := b.give(t, node); status.Code(err) != codes.Unimplemented {
			wantRefusal(t, "a termination of a missing machine", err)
		}
	}
}
