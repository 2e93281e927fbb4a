package strategy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// node is where the faults are; the other one takes the pods that must go.
const node = "gpu-0"

// waitTimeout bounds every wait; a wait ends when its condition holds.
const waitTimeout = 3 * time.Minute

// lines are the faults, as the kernel writes them: one that is not fatal, and
// fatal ones of every check.
var lines = []string{
	"NVRM: Xid (PCI:0000:12:00): 13, pid=7, Graphics Exception",
	"NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus.",
	"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 23001, Fatal, Link 46 ingress SRC-VC buffer overflow",
	"NVRM: The NVIDIA GPU 0000:14:00.0",
	"NVRM: (PCI ID: 10de:2330) installed in this system has",
	"NVRM: fallen off the bus and is not responding to commands.",
	// Together a pattern: RepeatedXID31OnDifferentGPU.
	"NVRM: Xid (PCI:0000:15:00): 31, pid=8, MMU Fault",
	"NVRM: Xid (PCI:0000:16:00): 31, pid=8, MMU Fault",
}

// faults is how many events the lines make.
const faults = 6

// world is one cluster with every service, whose monitors report one strategy.
type world struct {
	t        *testing.T
	strategy record.Strategy
	fleet    *fleet.Fleet
	// before and after the faults, every object of the API server.
	before, after state
	// records are those of the faults, metrics the connector's page at the end.
	records []record.Record
	metrics string
	// folded is what the connector had folded before the faults.
	folded float64
	// sink is what event-exporter sends to.
	sink *sink
}

// newWorlds starts both clusters at once.
func newWorlds(t *testing.T) (acting, observing *world) {
	t.Helper()
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := fleet.Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	worlds := []*world{{t: t, strategy: record.Process}, {t: t, strategy: record.PersistOnly}}
	var both sync.WaitGroup
	problems := make([]error, len(worlds))
	for i, w := range worlds {
		both.Go(func() { problems[i] = w.start(t.Context(), root, bin) })
	}
	both.Wait()
	t.Cleanup(func() {
		for _, w := range worlds {
			if w.fleet == nil {
				continue
			}
			if t.Failed() {
				t.Logf("services of the %s cluster:\n%s", w.strategy, w.fleet.Logs(node, 12))
			}
			if err := w.fleet.Stop(); err != nil {
				t.Errorf("stopping the %s cluster: %v", w.strategy, err)
			}
		}
	})
	if err := errors.Join(problems...); err != nil {
		t.Fatal(err)
	}
	return worlds[0], worlds[1]
}

func (w *world) start(ctx context.Context, root, bin string) (err error) {
	connectors := filepath.Join(w.t.TempDir(), "connectors.toml")
	if err := os.WriteFile(connectors, []byte(publishers), 0o600); err != nil {
		return err
	}
	w.fleet, err = fleet.Start(ctx, fleet.Options{
		Nodes: 2, Store: "sqlite", Root: root, Bin: bin, Progress: &bytes.Buffer{},
		StrategyOf: func(string) string { return string(w.strategy) },
		Runs:       func(_, n string) bool { return n == "" || n == node },
		// No recovery comes while the clusters are compared.
		SettleTime: time.Hour, RebootTime: time.Second, Publishers: connectors,
	})
	if err != nil {
		return err
	}
	w.sink = newSink(w.t)
	config := filepath.Join(w.fleet.Dir, "event-exporter.toml")
	text := fmt.Sprintf("[exporter.metadata]\ncluster = \"test\"\n[exporter.sink]\nendpoint = %q\n", w.sink.url)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	common := []string{"--store", w.fleet.DSN, "--single-host", "--metrics-address", "127.0.0.1:0"}
	w.fleet.Launch("event-exporter", "event-exporter", append(common, "--config", config), nil)
	token, err := w.token(ctx, "health-events-analyzer")
	if err != nil {
		return err
	}
	w.fleet.Launch("health-events-analyzer", "health-events-analyzer",
		append(common, "--socket", "unix://"+w.fleet.Socket(node), "--socket-token-path", token), nil)
	return w.fleet.AddWorkloads(ctx)
}

// sink receives CloudEvents.
type sink struct {
	url string

	mu sync.Mutex
	// got is the strategy of each event by its id.
	got map[string]string
}

func newSink(t *testing.T) *sink {
	s := &sink{got: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// ServeHTTP takes one event in the structured mode.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e struct {
		ID   string
		Data struct {
			HealthEvent struct{ ProcessingStrategy string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[e.ID] = e.Data.HealthEvent.ProcessingStrategy
}

// strategy is what an event was exported as, or empty.
func (s *sink) strategy(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[id]
}

// fence begins the names of the checks of fences.
const fence = "Fence"

// pass publishes a healthy PROCESS event of its own check, and waits until fault-quarantine has
// evaluated it and the connector shows it: then they have also handled everything published
// before.
func (w *world) pass(name string) {
	w.t.Helper()
	check := fence + name
	id := w.publish(&protos.HealthEvent{Agent: "fence", CheckName: check, ComponentClass: "GPU", IsHealthy: true, Message: "all is well"})
	w.until("the fence to be judged", func(ctx context.Context) error {
		r, err := w.fleet.Store.Get(ctx, id)
		if err == nil && !r.Evaluated() {
			err = errors.New("stored and not judged")
		}
		return err
	})
	w.until("the fence to be shown", func(ctx context.Context) error { return w.shows(ctx, check) })
}

// shows returns an error unless the Node has a condition of a check.
func (w *world) shows(ctx context.Context, check string) error {
	n, err := w.fleet.Node(ctx, node)
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if string(c.Type) == check {
			return nil
		}
	}
	return fmt.Errorf("no condition %s", check)
}

// publish sends an event to the node's connector and returns its id.
func (w *world) publish(e *protos.HealthEvent) string {
	w.t.Helper()
	conn, err := grpc.NewClient("unix://"+w.fleet.Socket(node), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	e.Version, e.Id, e.NodeName, e.GeneratedTimestamp = 1, uuid.Must(uuid.NewV7()).String(), node, timestamppb.Now()
	w.until("an event to be accepted", func(ctx context.Context) error {
		_, err := protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}})
		return err
	})
	return e.GetId()
}

// counted waits until the connector has counted so many events with the
// monitors' strategy at its ingest endpoint, and so many more than at the beginning in the
// node's fault set, and keeps its metrics.
func (w *world) counted(events int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d events to be counted", events), func(ctx context.Context) error {
		page, err := scrape(ctx, w.fleet.Service(fleet.Connector+"@"+node).Log)
		if events == 0 {
			w.folded = folded(page)
		}
		accepted := sum(page, fmt.Sprintf(acceptedOf, w.strategy))
		if err == nil && int(min(accepted, folded(page)-w.folded)) < events {
			err = fmt.Errorf("%v are accepted and %v folded", accepted, folded(page)-w.folded)
		}
		return err
	})
	// A page is not made in one moment: one that was begun after all was counted
	// agrees with itself.
	w.until("the connector's metrics", func(ctx context.Context) (err error) {
		w.metrics, err = scrape(ctx, w.fleet.Service(fleet.Connector+"@"+node).Log)
		return err
	})
}

// acceptedOf is the connector's count of events of one strategy.
const acceptedOf = `nvsentinel_connector_events_accepted_total{strategy="%s"}`

// folded is how many events have been folded into the node's fault set.
func folded(page string) float64 { return sum(page, "nvsentinel_connector_fault_set_updates_total{") }

// sum adds up the series of a page of metrics that begin so.
func sum(page, prefix string) (total float64) {
	for line := range strings.SplitSeq(page, "\n") {
		var n float64
		if i := strings.LastIndex(line, " "); strings.HasPrefix(line, prefix) && i > 0 {
			if _, err := fmt.Sscan(line[i:], &n); err == nil {
				total += n
			}
		}
	}
	return total
}

// scrape reads the metrics of a service, at the address that its log names last.
func scrape(ctx context.Context, log string) (string, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return "", err
	}
	address := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		var output struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &output) == nil && output.Msg == "probe and metrics server started" {
			address = output.Address
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	return string(page), err
}

// write writes the faults into the kernel log and waits until they are stored.
func (w *world) write() {
	w.t.Helper()
	for _, line := range lines {
		if err := w.fleet.WriteLine(node, line); err != nil {
			w.t.Fatal(err)
		}
	}
	w.until("the faults to be stored", func(ctx context.Context) error {
		all, err := w.fleet.Records(ctx, node)
		w.records = nil
		for _, r := range all {
			if r.Event.Agent == "syslog-health-monitor" {
				w.records = append(w.records, r)
			}
		}
		if err == nil && len(w.records) != faults {
			err = fmt.Errorf("%d of %d are stored", len(w.records), faults)
		}
		return err
	})
}

// until asks again and again until there is no error, or patience has ended.
func (w *world) until(what string, holds func(context.Context) error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%s cluster: waited %s for %s: %v", w.strategy, waitTimeout, what, err)
		case <-tick.C:
		}
	}
}
