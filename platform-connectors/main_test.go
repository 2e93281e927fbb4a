package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway/gatewaytest"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// asConnector makes this test binary a connector, with its own command line, so that
// tests can kill it as a process: node-connector, or platform-connectors with a role.
const asConnector = "PLATFORM_CONNECTORS_TEST_PROCESS"

const nodeName = "gpu-7"

func TestMain(m *testing.M) {
	if os.Getenv(asConnector) != "" {
		signal.Ignore(syscall.SIGXFSZ) // a test makes the disk full by a limit
		if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "--role=") }) {
			main()
		} else {
			daemon.Main("node-connector", "", nodeconnector.Default(), nodeconnector.Build)
		}
		return
	}
	os.Exit(localcluster.Main(m))
}

// place is the disk of one node, the gateway that its connector goes through, and the
// store.
type place struct {
	t       *testing.T
	dir     string
	socket  string
	args    []string
	env     []string
	store   string // another address than that of a file in dir
	agents  []authz.Agent
	reviews nodeclient.TokenReviews // of publishers' tokens; nil is the gateway's own
	gate    *gatewaytest.Gateway
	serve   sync.Once
}

// newPlace is the place of the connector of nodeName.
func newPlace(t *testing.T, args ...string) *place {
	t.Helper()
	return newPlaceOf(t, nodeName, args...)
}

func newPlaceOf(t *testing.T, node string, args ...string) *place {
	t.Helper()
	dir := t.TempDir()
	// A socket's path has to be short, a test's folder is not.
	short, err := os.MkdirTemp("", "pc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	p := &place{t: t, dir: dir, socket: filepath.Join(short, "s"), gate: gatewaytest.Open(t, node)}
	p.args = slices.Concat([]string{
		"--node-name=" + node, "--socket=" + p.socket, "--wal-dir=" + filepath.Join(dir, "spool"), "--metrics-address=off", "--log-format=text",
	}, p.gate.Flags(), args)
	return p
}

func (p *place) dsn() string {
	return cmp.Or(p.store, "sqlite://"+filepath.Join(p.dir, "db", "records.db"))
}

func (p *place) makeStoreReachable() {
	if err := os.MkdirAll(filepath.Join(p.dir, "db"), 0o750); err != nil {
		p.t.Fatal(err)
	}
}

// process is one life of the connector.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  *outputTee
}

// outputTee keeps the output of a process, and passes it on.
type outputTee struct {
	mu   sync.Mutex
	text bytes.Buffer
	out  io.Writer
}

// Write hears a line.
func (o *outputTee) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	return o.out.Write(b)
}

func (o *outputTee) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var served = regexp.MustCompile(`probe and metrics server started.* address=(\S+)`)

// url is a page of the process's own server, which takes a free port itself.
func (c *process) url(t *testing.T, page string) string {
	t.Helper()
	var found []string
	await(t, func() (bool, string) {
		found = served.FindStringSubmatch(c.log.String())
		return found != nil, "no metrics are served"
	})
	return "http://" + found[1] + page
}

func (p *place) start() *process {
	p.t.Helper()
	return p.connect(self(p.t))
}

// self is this test binary.
func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// connect starts a program that is the place's connector, and its gateway before the
// first one.
func (p *place) connect(program string) *process {
	p.t.Helper()
	p.serve.Do(func() {
		p.gate.Serve(p.t, gatewaytest.Options{DSN: p.dsn(), Agents: p.agents, Publishers: p.reviews})
	})
	return p.run(program, p.args...)
}

// run starts a program beside the connector.
func (p *place) run(program string, args ...string) *process {
	p.t.Helper()
	c := &process{cmd: exec.Command(program, args...), done: make(chan struct{}), log: &outputTee{out: p.t.Output()}}
	c.cmd.Env = append(append(os.Environ(), asConnector+"=1"), p.env...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := testkit.StartChild(c.cmd); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.done)
	}()
	p.t.Cleanup(c.kill)
	return c
}

// kill ends the process as a power cut would.
func (c *process) kill() { c.signal(syscall.SIGKILL) }

// stop asks the process to end and waits for it.
func (c *process) stop() { c.signal(syscall.SIGTERM) }

func (c *process) signal(s syscall.Signal) {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(err)
	}
	<-c.done
}

func (p *place) client() protos.PlatformConnectorClient {
	p.t.Helper()
	quick := grpc.ConnectParams{MinConnectTimeout: time.Minute, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}
	conn, err := grpc.NewClient("unix://"+p.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quick))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return protos.NewPlatformConnectorClient(conn)
}

// send sends one batch, over and over until it is acknowledged.
func send(ctx context.Context, c protos.PlatformConnectorClient, events ...*protos.HealthEvent) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, err := c.HealthEventOccurredV1(attempt, &protos.HealthEvents{Version: 1, Events: events}, grpc.WaitForReady(true))
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w, last: %w", ctx.Err(), err)
		}
	}
}

// agent is the one that the tests' check belongs to.
const agent = "syslog-health-monitor"

// event is a fatal event of one of the agent's outboxes; publisher and seq make
// its id and message.
func event(publisher string, seq int) *protos.HealthEvent {
	text := fmt.Sprintf("%s/%d", publisher, seq)
	id := uuid.NewSHA1(uuid.Nil, []byte(text))
	id[6] = id[6]&0x0f | 0x70 // as a monitor's
	return &protos.HealthEvent{
		Version: 1, Agent: agent, ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true,
		Message: text, RecommendedAction: protos.RecommendedAction_RESTART_BM, ErrorCode: []string{"79"},
		EntitiesImpacted:   []*protos.Entity{{EntityType: "GPU_UUID", EntityValue: "GPU-" + publisher}},
		GeneratedTimestamp: timestamppb.New(time.Date(2026, 3, 1, 12, 0, seq, 0, time.UTC)),
		NodeName:           nodeName, Id: id.String(),
		Metadata: map[string]string{record.MetadataSeq: fmt.Sprint(seq), record.MetadataSeqEpoch: "epoch-" + publisher, record.MetadataSeqRuns: "run"},
	}
}

// records is the store as another service sees it.
func (p *place) records() store.Store {
	p.t.Helper()
	s, err := storeopen.Open(p.t.Context(), p.dsn(), storeopen.Options{SingleHost: true})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { s.Close() })
	return s
}

// await polls until ok returns true or two minutes are over; ok also returns what is missing.
func await(t *testing.T, ok func() (done bool, missing string)) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, missing := ok()
		if done {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after two minutes: %s", missing)
		case <-tick.C:
		}
	}
}

func awaitStored(t *testing.T, s store.Store, n int) []record.Record {
	t.Helper()
	var all []record.Record
	await(t, func() (bool, string) {
		var err error
		all, err = s.List(t.Context(), store.Query{}) // a process that died a moment ago may have to be cleaned up after
		return err == nil && len(all) >= n, fmt.Sprintf("%d of %d events are stored, %v", len(all), n, err)
	})
	return all
}

// storm sends events from many publishers while the connector is killed and
// started again, and returns what was acknowledged.
func storm(t *testing.T, p *place, publishers, each int, kills []int) map[string]bool {
	t.Helper()
	var acknowledged atomic.Int64
	var mu sync.Mutex
	acked := map[string]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	connector := p.start()
	client := p.client()
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for seq := range each {
				e := event(fmt.Sprintf("p%02d", i), seq+1)
				if err := send(ctx, client, e); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[e.GetId()] = true
				mu.Unlock()
				acknowledged.Add(1)
			}
		})
	}
	for _, at := range kills {
		await(t, func() (bool, string) {
			n := acknowledged.Load()
			return n >= int64(at), fmt.Sprintf("%d of %d events acknowledged", n, at)
		})
		connector.kill()
		connector = p.start()
	}
	wg.Wait()
	return acked
}

func TestEveryAcknowledgedEventIsStoredOnceDespiteKills(t *testing.T) {
	p := newPlace(t, "--kubernetes=false")
	p.makeStoreReachable()
	const publishers, each = 64, 16 // 1,024 events
	acked := storm(t, p, publishers, each, []int{50, 300, 700, publishers * each})
	all := awaitStored(t, p.records(), publishers*each)
	if len(all) != publishers*each || len(acked) != publishers*each {
		t.Errorf("%d records, %d events acknowledged, want %d", len(all), len(acked), publishers*each)
	}
	last := map[string]uint64{}
	for _, r := range all {
		if !acked[r.ID] {
			t.Errorf("record %s was never acknowledged", r.ID)
		}
		delete(acked, r.ID)
		if r.Seq != last[r.SeqEpoch]+1 {
			t.Errorf("%s: seq %d is stored after %d", r.SeqEpoch, r.Seq, last[r.SeqEpoch])
		}
		last[r.SeqEpoch] = r.Seq
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged events are not stored", len(acked))
	}
}

func TestStoreMayBeAwayAtStart(t *testing.T) {
	p := newPlace(t, "--kubernetes=false")
	connector := p.start()
	persistOnly := event("b", 1)
	persistOnly.ProcessingStrategy = protos.ProcessingStrategy_PERSIST_ONLY
	persistOnly.Metadata = nil
	if err := send(t.Context(), p.client(), event("a", 1), persistOnly); err != nil {
		t.Fatal(err)
	}
	connector.kill()
	connector = p.start()
	p.makeStoreReachable()
	all := awaitStored(t, p.records(), 2)
	if all[0].ExpireAt != nil || all[0].Seq != 1 || all[0].SeqEpoch != "epoch-a" {
		t.Errorf("PROCESS: expires %v, seq %d in %q", all[0].ExpireAt, all[0].Seq, all[0].SeqEpoch)
	}
	if all[1].ExpireAt == nil || all[1].Seq != 0 || all[1].SeqEpoch != "" { // the connector's own count is not its publisher's
		t.Errorf("PERSIST_ONLY: expires %v, seq %d in %q", all[1].ExpireAt, all[1].Seq, all[1].SeqEpoch)
	}
	connector.stop()
	if code := connector.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("stopped with exit code %d", code)
	}
	if _, err := os.Stat(p.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSameIDWithOtherContentBlocksNothing(t *testing.T) {
	p := newPlace(t, "--kubernetes=false")
	p.makeStoreReachable()
	p.start()
	other := event("a", 1)
	other.Message = "other content"
	for _, e := range []*protos.HealthEvent{event("a", 1), other, event("a", 1), event("a", 2)} {
		if err := send(t.Context(), p.client(), e); err != nil {
			t.Fatal(err)
		}
	}
	all := awaitStored(t, p.records(), 2)
	if len(all) != 2 || all[0].Event.Message != "a/1" || all[1].Event.Message != "a/2" {
		t.Errorf("stored: %v", all)
	}
}
