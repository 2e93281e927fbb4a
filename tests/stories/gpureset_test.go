package stories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/janitor/gputool"
)

// What gpu-reset writes into /dev/kmsg is, as the kernel gives it back, what the
// syslog monitor clears a GPU's faults for, or reports its failure.
func TestMonitorReadsResetOutcome(t *testing.T) {
	var log strings.Builder
	tool := gputool.Tool{Kernel: &log, Log: t.Logf, SMI: func(_ context.Context, args ...string) (string, error) {
		if slices.Contains(args, otherGPU.UUID) {
			return "", errors.New("in use")
		}
		return "", nil
	}}
	if err := tool.Reset(t.Context(), []string{thisGPU.UUID, otherGPU.UUID}); err == nil {
		t.Error("a GPU in use was reset")
	}
	var got []recovery.ResetOutcome
	for written := range strings.Lines(log.String()) {
		// The kernel takes "<priority>text", and gives "priority,number,time,flags;text".
		priority, text, _ := strings.Cut(strings.TrimPrefix(written, "<"), ">")
		r, err := kernellog.ParseRecord(fmt.Appendf(nil, "%s,7,1000,-;%s", priority, text))
		if err != nil {
			t.Fatal(err)
		}
		if r.Facility == 0 {
			t.Errorf("%q claims to be the kernel's", written)
		}
		outcome, ok := recovery.ParseReset(r.Text)
		if !ok {
			t.Fatalf("the monitor does not read %q", r.Text)
		}
		got = append(got, outcome)
	}
	if want := []recovery.ResetOutcome{{UUID: thisGPU.UUID, Success: true}, {UUID: otherGPU.UUID}}; !slices.Equal(got, want) {
		t.Errorf("the monitor reads %+v, want %+v", got, want)
	}
}
