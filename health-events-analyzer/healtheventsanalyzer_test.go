package healtheventsanalyzer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// waitTimeout bounds the waits for a condition, on machines of any speed.
const waitTimeout = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// site is a store, and a connector on a real socket that stores what it takes,
// as it does for a publisher that publishes events about all nodes, before it acknowledges.
type site struct {
	t         *testing.T
	dsn       string
	store     store.Store
	connector *reporttest.Connector
}

func newSite(t *testing.T, dsn string) *site {
	s := &site{t: t, dsn: dsn, store: storetest.Open(t, dsn, storeopen.Options{}), connector: reporttest.Start(t)}
	s.connector.Refuse(func(in *protos.HealthEvents) error {
		for _, e := range in.GetEvents() {
			r := record.Record{ID: e.GetId(), CreatedAt: time.Now().UTC(), Event: record.FromProto(e)}
			r.Seq, r.SeqEpoch, _ = r.Event.Seq()
			if _, err := s.store.Append(context.Background(), []record.Record{r}); err != nil {
				return status.Error(codes.Unavailable, err.Error())
			}
		}
		return nil
	})
	return s
}

func (s *site) args(more ...string) []string {
	return append([]string{"--store", s.dsn, "--single-host", "--socket", s.connector.Target()}, more...)
}

// fault stores XID 31 of a GPU; two of different GPUs are a pattern.
func (s *site) fault(node, gpu string, edit ...func(*record.Record)) record.Record {
	s.t.Helper()
	r := storetest.Record(node, func(r *record.Record) {
		r.CreatedAt = time.Now().UTC()
		r.Event.GeneratedTimestamp, r.Event.ErrorCode = r.CreatedAt, []string{"31"}
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: gpu}}
		r.Event.Metadata = map[string]string{record.MetadataBootID: "boot-" + gpu}
	})
	for _, e := range edit {
		e(&r)
	}
	storetest.MustAppend(s.t, s.store, r)
	return r
}

func healthy(r *record.Record) {
	r.Event.IsHealthy, r.Event.IsFatal, r.Event.ErrorCode = true, false, nil
}

func forTheRecord(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }

// published lists "rule node strategy" of what the connector acknowledged, each
// once, in the order of its first sight; recoveries begin with "-".
func (s *site) published() []string {
	var out []string
	for _, e := range s.connector.Distinct(s.t) {
		if e.GetCheckName() == "XIDErrorSoloNoBurst" {
			continue
		}
		text := fmt.Sprint(e.GetCheckName(), " ", e.GetNodeName(), " ", e.GetProcessingStrategy())
		if e.GetIsHealthy() {
			text = "-" + text
		}
		out = append(out, text)
	}
	return out
}

func (s *site) await(want ...string) {
	s.t.Helper()
	testkit.Until(s.t, waitTimeout, func() bool {
		got := s.published()
		return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) })
	})
}

// settled waits until everything stored so far was taken, and lists it.
func (s *site) settled(marker string) []string {
	s.t.Helper()
	s.fault(marker, "GPU-1")
	s.fault(marker, "GPU-2")
	s.await(pattern31 + marker + " PROCESS")
	return slices.DeleteFunc(s.published(), func(x string) bool { return strings.Contains(x, marker) })
}

const pattern31 = "RepeatedXID31OnDifferentGPU "

func stores(t *testing.T, run func(t *testing.T, dsn string)) {
	t.Run("sqlite", func(t *testing.T) { run(t, storetest.SQLiteDSN(t)) })
	t.Run("postgresql", func(t *testing.T) {
		_, dsn := pgtest.Database(t)
		run(t, dsn)
	})
}

// TestAFaultAndItsEnd goes from stored events to the derived fault and, when its
// causes have recovered, to its recovery; a restart and a second replica that
// does not know of the first publish nothing again.
func TestAFaultAndItsEnd(t *testing.T) {
	stores(t, func(t *testing.T, dsn string) {
		s := newSite(t, dsn)
		one := daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args()...)
		a, b := s.fault("n1", "GPU-1"), s.fault("n1", "GPU-2")
		s.await(pattern31 + "n1 PROCESS")
		var d record.Event
		for _, e := range s.connector.Distinct(t) {
			if e.GetCheckName() == "RepeatedXID31OnDifferentGPU" {
				d = record.FromProto(e)
			}
		}
		if d.Agent != record.AnalyzerAgent || d.Metadata["sources"] != a.ID+","+b.ID || d.BootID() != "boot-GPU-2" || d.IsFatal ||
			d.ErrorCode[0] != "31" || d.EntitiesImpacted[0].EntityValue != "GPU-2" || d.Message == "" {
			t.Errorf("derived %+v", d)
		}
		two := daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args()...)
		s.fault("n1", "GPU-1", healthy)
		if got := s.settled("m1"); !slices.Equal(got, []string{pattern31 + "n1 PROCESS"}) {
			t.Errorf("with one of two causes over: %v", got)
		}
		s.fault("n1", "GPU-2", healthy)
		s.await("-" + pattern31 + "n1 PROCESS")
		one.Stop()
		two.Stop()
		s.fault("n1", "GPU-3")
		daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args()...)
		if got := s.settled("m2"); len(slices.DeleteFunc(got, func(x string) bool { return !strings.Contains(x, "n1") })) != 2 {
			t.Errorf("after a restart: %v", got)
		}
	})
}

// TestPersistOnlyIsNoEvidence: events for the record only are stored between
// those that act, and are no pattern with them, whether they were there before
// the node's window was read or come after.
func TestPersistOnlyIsNoEvidence(t *testing.T) {
	stores(t, func(t *testing.T, dsn string) {
		s := newSite(t, dsn)
		s.fault("n1", "GPU-1", forTheRecord)
		s.fault("n1", "GPU-2")
		daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args()...)
		s.settled("m1")
		s.fault("n1", "GPU-3", forTheRecord)
		s.fault("n1", "GPU-4", forTheRecord)
		s.fault("n1", "GPU-2")
		if got := s.settled("m2"); len(slices.DeleteFunc(got, func(x string) bool { return !strings.Contains(x, "n1") })) != 0 {
			t.Errorf("published %v", got)
		}
	})
}

// TestTheServicesOwnStrategy: what a service with --processingStrategy
// PERSIST_ONLY derives is for the record only, and so is its end.
func TestTheServicesOwnStrategy(t *testing.T) {
	s := newSite(t, storetest.SQLiteDSN(t))
	daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args("--processingStrategy", "PERSIST_ONLY")...)
	s.fault("n1", "GPU-1")
	s.fault("n1", "GPU-2")
	s.await(pattern31 + "n1 PERSIST_ONLY")
	s.fault("n1", "", healthy, func(r *record.Record) { r.Event.EntitiesImpacted = nil })
	s.await("-" + pattern31 + "n1 PERSIST_ONLY")
}

// TestAConnectorThatIsAway holds the position, and shows.
func TestAConnectorThatIsAway(t *testing.T) {
	s := newSite(t, storetest.SQLiteDSN(t))
	s.connector.Cut()
	r := daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args()...)
	s.fault("n1", "GPU-1")
	s.fault("n1", "GPU-2")
	testkit.Until(t, waitTimeout, func() bool {
		return strings.Contains(s.metrics(r), `nvsentinel_analyzer_publish_failures_total{code="Unavailable"}`)
	})
	reader, err := storeopen.OpenReader(t.Context(), s.dsn, storeopen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	lag, err := reader.Lag(t.Context(), record.AnalyzerAgent, record.ProcessableNonFatalUnhealthyInserts(), 10)
	if err != nil || lag.Pending == 0 {
		t.Errorf("the position was released: %+v, %v", lag, err)
	}
	s.connector.Listen(t)
	s.await(pattern31 + "n1 PROCESS")
}

func (s *site) metrics(r *daemon.Running) string {
	answer, err := http.Get("http://" + r.Address + "/metrics")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// TestKilledAtEveryStep: whatever place the process is killed at, the fault and
// its recovery are published, under one id each.
func TestKilledAtEveryStep(t *testing.T) {
	binary, err := testkit.Controller(t.TempDir(), "health-events-analyzer")
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"observed", "observed:3", "decided", "decided:3", "published", "published:3", "done", "done:2"} {
		t.Run(point, func(t *testing.T) {
			s := newSite(t, storetest.SQLiteDSN(t))
			starts := s.supervise(binary, point)
			s.fault("n1", "GPU-1")
			s.fault("n1", "GPU-2")
			s.await(pattern31 + "n1 PROCESS")
			s.fault("n1", "", healthy, func(r *record.Record) { r.Event.EntitiesImpacted = nil })
			s.await("-" + pattern31 + "n1 PROCESS")
			got := s.settled("m1")
			if want := []string{pattern31 + "n1 PROCESS", "-" + pattern31 + "n1 PROCESS"}; !slices.Equal(got, want) {
				t.Errorf("published %v", got)
			}
			testkit.Until(t, waitTimeout, func() bool { return starts.Load() > 1 }) // it was killed
		})
	}
}

// supervise starts the service again whenever it ends, until the test does, and
// counts the starts.
func (s *site) supervise(binary, point string) *atomic.Int32 {
	once, starts := s.t.TempDir(), &atomic.Int32{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			starts.Add(1)
			cmd := exec.CommandContext(ctx, binary, s.args("--metrics-address", "127.0.0.1:0")...)
			cmd.Env = append(os.Environ(), "NVSENTINEL_CRASH="+record.AnalyzerAgent+"/"+point, "NVSENTINEL_CRASH_ONCE="+once)
			cmd.Stderr = s.t.Output()
			_ = cmd.Run() // its end is expected
		}
	}()
	s.t.Cleanup(func() { stop(); <-ended })
	return starts
}
