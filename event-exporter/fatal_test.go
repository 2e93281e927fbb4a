package eventexporter_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/event-exporter/internal/delivery"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestARecordThatKillsTheExporter: the process dies whenever it makes the event of
// one record. Everything else is exported, also of the same node, and the record is
// named and stays in the store; the position goes on.
func TestARecordThatKillsTheExporter(t *testing.T) {
	testkit.Long(t, "internal/consume TestPoisonRecordIsDeadLettered lives the same lives, internal/delivery TestDeadLettersAreSkipped")
	t.Setenv("NVSENTINEL_FATAL_TEXT", "fatal to event-exporter")
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "store.db")
	b := newEventReceiver(t, nil)
	b.always(http.StatusOK)
	records := storetest.Open(t, dsn, storeopen.Options{SingleHost: true})
	var all []record.Record
	for i := range 60 {
		r := numbered([]string{"node-a", "node-b", "node-c"}[i%3], i+1)
		if i == 30 {
			r.Event.Message = "fatal to event-exporter"
		}
		all = append(all, r)
	}
	storetest.MustAppend(t, records, all...)
	file := configure(t, dsn, b.server.URL)
	var p *process
	deaths := testkit.RunUntilDone(t, 9, func() <-chan struct{} { p = launch(t, file); return p.over }, func() bool {
		_, text := p.get("/metrics")
		return b.have() == len(all)-1 && strings.Contains(text, "nvsentinel_exporter_dead_lettered_records 1")
	})
	if deaths < 3 {
		t.Errorf("the process died %d times", deaths)
	}
	p.awaitText("/readyz", "live, 0 unsettled")
	p.stop()
	letters, err := records.DeadLetters(t.Context(), consumer.PoisonRecordSource(delivery.Consumer))
	if err != nil || len(letters) != 1 || letters[0].ID != all[30].ID {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
	nothingComesAgain(t, b, records, file)
	kept, err := records.Get(t.Context(), all[30].ID)
	if err != nil || !slices.Equal(kept.Event.ErrorCode, all[30].Event.ErrorCode) {
		t.Errorf("the record is %+v, %v", kept, err)
	}
}
