package reconciler_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestARecordThatKillsTheDrainer: the process dies whenever it looks at the records
// of one node. The other one is drained, one thing at a time.
func TestARecordThatKillsTheDrainer(t *testing.T) {
	testkit.Long(t, "internal/consume TestPoisonRecordIsDeadLettered, TestOtherCrashesAreNotAttributed live the same lives")
	binary := drainer(t)
	s := newStage(t)
	s.stop()
	s.stop = func() {}
	s.fault("r1", "r1", func(r *record.Record) { r.Event.Message = "fatal to node-drainer" })
	s.mark("r1")
	other := s.node + "-other"
	if _, err := s.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: other}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cluster.DeleteNode(context.Background(), other) })
	s.node = other
	s.pod(localcluster.PodSpec{Name: "a"})
	s.fault("r2", "r2")
	s.mark("r2")
	var log strings.Builder
	var process *exec.Cmd
	deaths := testkit.RunUntilDone(t, 5, func() <-chan struct{} {
		log.Reset()
		process = exec.CommandContext(t.Context(), binary, s.arguments()...)
		process.Env, process.Stderr = append(os.Environ(), "NVSENTINEL_FATAL_TEXT=fatal to node-drainer"), &log
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() { _ = process.Wait(); close(over) }()
		return over
	}, func() bool { return s.eviction("r2").Status == record.EvictionSucceeded })
	_ = process.Process.Kill()
	letters, err := s.records.DeadLetters(t.Context(), "lives of consumers")
	if err != nil || len(letters) == 0 || deaths == 0 {
		t.Errorf("after %d deaths the store remembers %d lives, %v", deaths, len(letters), err)
	}
	if e := s.eviction("r1").Status; e != record.EvictionUnset {
		t.Errorf("the fatal record's drain is %q", e)
	}
}
