package gputool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/janitor/gputool"
)

const uuid = "GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7"

func TestNames(t *testing.T) {
	got, err := gputool.Names(" " + uuid + ",,0000:18:00.0, 00000000:18:00.0")
	if diff := cmp.Diff([]string{uuid, "0000:18:00.0", "00000000:18:00.0"}, got); err != nil || diff != "" {
		t.Errorf("error %v, names (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"0", "all", "GPU-1", uuid + "x", uuid + " -r", "0000:18:00", "-i"} {
		if got, err := gputool.Names(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add(uuid + ",0000:18:00.0")
	f.Fuzz(func(t *testing.T, list string) {
		names, _ := gputool.Names(list)
		for _, name := range names {
			if strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \n;$") {
				t.Errorf("name %q", name)
			}
		}
	})
}

// What cannot be reported in the kernel log is a failure: nobody would clear the fault.
func TestAKernelLogThatTakesNothing(t *testing.T) {
	tool := gputool.Tool{
		SMI: func(context.Context, ...string) (string, error) { return "", nil }, Kernel: refusing{}, Log: t.Logf,
	}
	if err := tool.Reset(t.Context(), []string{uuid}); err == nil || !strings.Contains(err.Error(), "kernel log") {
		t.Errorf("error %v", err)
	}
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errors.New("no") }

// A driver that hangs is left after a while, and the next GPU gets its turn.
func TestEachCallHasALimit(t *testing.T) {
	var log strings.Builder
	tool := gputool.Tool{Kernel: &log, Log: t.Logf, SMI: func(ctx context.Context, args ...string) (string, error) {
		if _, limited := ctx.Deadline(); !limited {
			return "", fmt.Errorf("%v has no limit", args)
		}
		return "", nil
	}}
	if err := tool.Reset(t.Context(), []string{uuid}); err != nil {
		t.Error(err)
	}
	if log.String() != gputool.Line(uuid, true) {
		t.Errorf("the kernel log has %q", log.String())
	}
}

func TestNoGPUs(t *testing.T) {
	tool := gputool.Tool{Log: t.Logf, SMI: func(context.Context, ...string) (string, error) { return "\n", nil }}
	if err := tool.Reset(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "reports none") {
		t.Errorf("error %v", err)
	}
}
