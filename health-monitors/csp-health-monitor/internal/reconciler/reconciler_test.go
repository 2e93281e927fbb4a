package reconciler_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestKilledAtEveryPoint plays one story again and again and kills the monitor at each
// of its effects in turn: at every write and every request, once before it is carried
// out and once behind it. The provider reports everything once. In the end every
// maintenance was reported once and healed once, and a request that was repeated was the
// same.
func TestKilledAtEveryPoint(t *testing.T) {
	for name, dsn := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return storetest.SQLiteDSN(t) },
		"postgresql": func(t *testing.T) string {
			_, dsn := pgtest.Database(t)
			storetest.Open(t, dsn, storeopen.Options{}) // a service makes the tables
			return dsn
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := storetest.Maintenances(t, dsn(t))
			deaths, again := 0, 0
			for at := 0; ; at++ {
				died := false
				for _, after := range []bool{false, true} {
					w := newWorld(t, fmt.Sprintf("cloud-%d-%v", at, after), m)
					d := &crash{at: at, after: after}
					w.start(d)
					story(w)
					died = died || d.dead
					again += w.connector.again
					w.want(fmt.Sprintf("killed at effect %d, after=%v", at, after),
						"fault n1 m1", "fault n2 m2", "healthy n1 m1", "healthy n2 m2")
					if left, err := m.Unfinished(t.Context(), w.csp); len(left) != 0 || err != nil {
						t.Errorf("killed at effect %d, after=%v: left are %+v, %v", at, after, left, err)
					}
				}
				if !died {
					break
				}
				deaths += 2
			}
			t.Logf("%d deaths at %d effects; %d events were sent again under their ids", deaths, deaths/2, again)
			if deaths < 20 || again == 0 {
				t.Errorf("%d deaths, %d repetitions: the story does too little", deaths, again)
			}
		})
	}
}

// story is the life of two maintenances; who dies begins a new life at once.
func story(w *world) {
	w.node("n1", true)
	w.node("n2", true)
	w.cloud.announce(planned("m1", "i-n1", announcement.Scheduled, begins(10*time.Minute)), planned("m2", "i-n2", announcement.Scheduled, begins(2*time.Hour)))
	for range 45 {
		if !w.round() {
			w.start(nil)
			w.round()
		}
		switch int(w.clock.Now().Sub(noon) / time.Minute) {
		case 100:
			w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing), planned("m2", "i-n2", announcement.Ongoing))
		case 130:
			w.cloud.announce(planned("m1", "i-n1", announcement.Completed))
		case 160:
			w.cloud.announce(planned("m2", "i-n2", announcement.Completed))
		}
		w.clock.Step(5 * time.Minute)
	}
}

// TestAReplicaThatLostItsLeaseWritesNothing: two monitors act at once; each report is
// stored once, regardless of who decided it.
func TestAReplicaThatLostItsLeaseWritesNothing(t *testing.T) {
	m := storetest.Maintenances(t, storetest.SQLiteDSN(t))
	w := newWorld(t, "cloud", m)
	w.node("n1", true)
	w.cloud.announce(planned("m1", "i-n1", announcement.Scheduled, begins(2*time.Hour)))
	w.round()
	frozen := w.reconciler
	w.start(nil)
	w.pass(100 * time.Minute) // the second one quarantines
	w.want("the new leader", "fault n1 m1")
	old := w.reconciler
	w.reconciler = frozen
	w.round() // the first one knows the revision of long ago
	w.round()
	w.want("the frozen one, too", "fault n1 m1")
	w.reconciler = old
	w.cloud.announce(planned("m1", "i-n1", announcement.Cancelled))
	w.pass(3 * time.Minute)
	w.want("the new leader goes on", "fault n1 m1", "healthy n1 m1")
}

// TestNothingIsLostBehindACheckpoint: a reading fails, and one cannot be stored; the
// same checkpoint is asked again.
func TestNothingIsLostBehindACheckpoint(t *testing.T) {
	w := newWorld(t, "cloud", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	w.node("n1", true)
	w.round()
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing))
	w.cloud.fails = errors.New("throttled")
	w.pass(3 * time.Minute)
	if ok, why := w.reconciler.Ready("provider")(); ok || why != "reading cloud: throttled" {
		t.Errorf("ready: %v, %q", ok, why)
	}
	w.want("while the provider fails")
	w.cloud.fails = nil
	w.pass(time.Minute)
	w.want("when it answers", "fault n1 m1")
	if ok, why := w.reconciler.Ready("provider")(); !ok {
		t.Error(why)
	}
}

// TestAnUnreachableProviderIsAFault: it is a fault of its own, PERSIST_ONLY, reported once
// and ended, over a restart too.
func TestAnUnreachableProviderIsAFault(t *testing.T) {
	w := newWorld(t, "cloud", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	w.node("n1", true)
	w.round()
	w.cloud.fails = errors.New("no route")
	w.pass(5 * time.Minute)
	w.want("failing for less than five minutes")
	w.pass(2 * time.Minute)
	w.want("failing for longer", "notice monitor cloud")
	w.start(nil)
	w.pass(10 * time.Minute)
	w.want("after a restart", "notice monitor cloud")
	w.cloud.fails = nil
	w.pass(2 * time.Minute)
	w.want("when it answers", "notice monitor cloud", "healthy monitor cloud")
	for _, e := range w.connector.events {
		if e.GetProcessingStrategy() != protos.ProcessingStrategy_PERSIST_ONLY || e.GetCheckName() != "CSPUnreachable" {
			t.Errorf("event %v", e)
		}
	}
	w.cloud.fails = errors.New("no route")
	w.pass(7 * time.Minute)
	w.want("again", "notice monitor cloud", "healthy monitor cloud", "notice monitor cloud")
}

// TestARefusedEventEndsItsMaintenance, and blocks no other.
func TestARefusedEventEndsItsMaintenance(t *testing.T) {
	m := storetest.Maintenances(t, storetest.SQLiteDSN(t))
	w := newWorld(t, "cloud", m)
	w.node("n1", true)
	w.node("n2", true)
	w.refuse = func(e *protos.HealthEvent) error {
		if e.GetNodeName() == "n1" {
			return errors.New("refused")
		}
		return nil
	}
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing), planned("m2", "i-n2", announcement.Ongoing))
	w.round()
	w.want("of two", "fault n2 m2")
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing))
	w.pass(3 * time.Minute)
	got, err := m.Maintenances(t.Context(), "cloud", []string{"m1"})
	if err != nil || len(got) != 1 || got[0].Status != maintenance.Failed || !got[0].Finished {
		t.Errorf("%+v, %v", got, err)
	}
	w.want("when it is announced again", "fault n2 m2")
}

// TestCompleteList: what is listed no more has ended; a reading that fails ends nothing.
func TestCompleteList(t *testing.T) {
	w := newWorld(t, "cloud", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	w.cloud.complete = true
	w.node("n1", true)
	w.node("n2", true)
	both := []announcement.Announcement{planned("m1", "i-n1", announcement.Ongoing), planned("m2", "i-n2", announcement.Ongoing)}
	w.cloud.announce(both...)
	w.round()
	w.want("both", "fault n1 m1", "fault n2 m2")
	w.cloud.fails = errors.New("away")
	w.pass(20 * time.Minute)
	w.cloud.fails = nil
	w.cloud.log = both[1:]
	w.pass(10 * time.Minute)
	w.cloud.log = both // a hole in the list
	w.pass(30 * time.Minute)
	w.cloud.log = both[1:]
	w.pass(17 * time.Minute)
	healed := w.connector.storedEvents()
	if !slices.Equal(healed[len(healed)-1:], []string{"healthy n1 m1"}) || slices.Contains(healed, "healthy n2 m2") {
		t.Errorf("told are %q", healed)
	}
	if n := len(w.cloud.questions[len(w.cloud.questions)-1].Open); n != 1 {
		t.Errorf("%d are asked for as open, want 1", n)
	}
}

// TestAcknowledgedWhileTheProviderIsRead: the provider takes its time, and what waits
// is reported meanwhile.
func TestAcknowledgedWhileTheProviderIsRead(t *testing.T) {
	w := newWorld(t, "cloud", storetest.Maintenances(t, storetest.SQLiteDSN(t)))
	w.node("n1", true)
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing))
	w.reconciler.Round(t.Context()) // decided, not sent
	w.cloud.announce(planned("m1", "i-n1", announcement.Completed))
	w.cloud.during = func() {
		batch, err := w.reconciler.Peek(0, 1, 1<<20)
		if err != nil || len(batch) != 1 {
			t.Fatalf("%v, %v", batch, err)
		}
		if err := w.reconciler.Remove(batch[0].Seq); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.Step(time.Minute)
	w.reconciler.Round(t.Context())
	w.cloud.during = nil
	w.pass(16 * time.Minute)
	w.want("healed", "healthy n1 m1")
	if ok, why := w.reconciler.Ready("store")(); !ok {
		t.Error(why)
	}
}

// TestTooManyAreNotTaken: a reading that would open more than are kept is not taken,
// and its checkpoint neither.
func TestTooManyAreNotTaken(t *testing.T) {
	m := storetest.Maintenances(t, storetest.SQLiteDSN(t))
	w := newWorld(t, "cloud", m)
	all := make([]announcement.Announcement, reconciler.MaxUnfinished+1)
	for i := range all {
		all[i] = planned(fmt.Sprint("m", i), "i-n1", announcement.Scheduled)
	}
	w.cloud.announce(all...)
	w.round()
	if ok, why := w.reconciler.Ready("bound")(); ok {
		t.Errorf("ready: %s", why)
	}
	if _, err := m.Provider(t.Context(), "cloud"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the checkpoint: %v", err)
	}
}

// TestUnreadableDocumentsArePassedOver: the others go on, and what the provider reports about
// them changes nothing.
func TestUnreadableDocumentsArePassedOver(t *testing.T) {
	m := unreadable{storetest.Maintenances(t, storetest.SQLiteDSN(t)), "m1"}
	w := newWorld(t, "cloud", m)
	w.node("n1", true)
	w.node("n2", true)
	w.cloud.announce(planned("m1", "i-n1", announcement.Ongoing), planned("m2", "i-n2", announcement.Ongoing))
	w.pass(2 * time.Minute)
	w.want("of two", "fault n2 m2")
	if n := testutil.ToFloat64(w.metrics.Undecodable); n != 1 {
		t.Errorf("%v documents are aside", n)
	}
}

// TestForgotten: what has finished is deleted after its retention.
func TestForgotten(t *testing.T) {
	m := storetest.Maintenances(t, storetest.SQLiteDSN(t))
	w := newWorld(t, "cloud", m)
	w.node("n1", true)
	w.cloud.announce(planned("m1", "i-n1", announcement.Cancelled))
	w.round()
	w.clock.Step(record.Retention - time.Minute)
	w.round()
	for _, want := range []int{1, 0} {
		if got, err := m.Maintenances(t.Context(), "cloud", []string{"m1"}); len(got) != want || err != nil {
			t.Errorf("%d are left, want %d; %v", len(got), want, err)
		}
		w.clock.Step(2 * time.Hour)
		w.round()
	}
}

// BenchmarkRound is a round over 10,000 machines and 2,000 open maintenances, of which
// the provider lists every one at each reading and none has changed.
func BenchmarkRound(b *testing.B) {
	m := storetest.Maintenances(b, storetest.SQLiteDSN(b))
	w := newWorld(b, "cloud", m)
	w.cloud.complete = true
	for i := range 10000 {
		name := fmt.Sprintf("n%05d", i)
		w.node(name, true)
		if i < 2000 {
			w.cloud.announce(planned(fmt.Sprint("m", i), "i-"+name, announcement.Scheduled, begins(1000*time.Hour)))
		}
	}
	began := time.Now()
	w.reconciler.Round(b.Context()) // saves all of them
	first := time.Since(began)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		w.clock.Step(time.Minute)
		w.reconciler.Round(b.Context())
	}
	b.StopTimer()
	b.ReportMetric(float64(first.Milliseconds()), "first-ms")
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	b.ReportMetric(float64(stats.HeapAlloc)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(len(w.cloud.questions))/float64(b.N+1), "calls/round")
	if n := testutil.ToFloat64(w.metrics.Unfinished); n != 2000 {
		b.Fatalf("%v are open", n)
	}
	if p, err := m.Provider(b.Context(), "cloud"); p.Revision != 1 || err != nil {
		b.Fatalf("%d writes of the checkpoint, %v; want the first alone", p.Revision, err)
	}
}
