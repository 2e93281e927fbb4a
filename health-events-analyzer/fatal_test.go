package healtheventsanalyzer

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestARecordThatKillsTheAnalyzer: the process dies whenever it looks at one record,
// which both of its feeds deliver. Every pattern of the others is found, on the same
// node too, and the record is named.
func TestARecordThatKillsTheAnalyzer(t *testing.T) {
	testkit.Long(t, "internal/consume TestPoisonDeliveryIsDeadLettered, TestTwoLoopsShareOneAccount")
	binary, err := testkit.Controller(t.TempDir(), "health-events-analyzer")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, storetest.SQLiteDSN(t))
	s.fault("n1", "GPU-1")
	fatal := s.fault("n1", "GPU-3", func(r *record.Record) { r.Event.Message = "fatal to " + record.AnalyzerAgent })
	s.fault("n1", "GPU-2")
	s.fault("n2", "GPU-1")
	s.fault("n2", "GPU-2")
	var process *exec.Cmd
	deaths := testkit.RunUntilDone(t, 9, func() <-chan struct{} {
		process = exec.CommandContext(t.Context(), binary, s.args("--metrics-address=off")...)
		process.Env = append(os.Environ(), "NVSENTINEL_FATAL_TEXT=fatal to "+record.AnalyzerAgent)
		process.Stderr = t.Output()
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() { _ = process.Wait(); close(over) }()
		return over
	}, func() bool {
		got := s.published()
		return slices.Contains(got, pattern31+"n1 PROCESS") && slices.Contains(got, pattern31+"n2 PROCESS")
	})
	_ = process.Process.Kill()
	letters, err := s.store.DeadLetters(t.Context(), consumer.PoisonRecordSource(record.AnalyzerAgent))
	if err != nil || len(letters) != 1 || letters[0].ID != fatal.ID || deaths < 5 {
		t.Errorf("after %d deaths, dead letters %+v, %v", deaths, letters, err)
	}
}
