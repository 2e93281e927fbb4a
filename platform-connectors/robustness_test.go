package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// rawCodec sends bytes as they are, as a publisher with another library may.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// sendRaw sends the bytes of one request.
func (p *place) sendRaw(wire []byte) error {
	p.t.Helper()
	conn, err := grpc.NewClient("unix://"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	return conn.Invoke(p.t.Context(), protos.PlatformConnector_HealthEventOccurredV1_FullMethodName, wire, &emptypb.Empty{},
		grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}), grpc.WaitForReady(true))
}

// wire is a batch of one event whose message has these bytes.
func wire(t *testing.T, e *protos.HealthEvent, message string) []byte {
	t.Helper()
	e = pb.CloneOf(e)
	e.Message = ""
	b, err := pb.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	field := e.ProtoReflect().Descriptor().Fields().ByName("message").Number()
	b = protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), message)
	batch := (&protos.HealthEvents{}).ProtoReflect().Descriptor().Fields().ByName("events").Number()
	return protowire.AppendBytes(protowire.AppendTag(nil, batch, protowire.BytesType), b)
}

// TestMalformedRequests goes through the real ingest endpoint to the real store: a request that
// can be repaired is stored with a note, one that cannot is refused by name, and the
// endpoint continues to serve.
func TestMalformedRequests(t *testing.T) {
	p := newPlace(t, "--kubernetes=false")
	p.makeStoreReachable()
	p.start()
	seq := 0
	next := func(change func(*protos.HealthEvent)) *protos.HealthEvent {
		seq++
		e := event("a", seq)
		change(e)
		return e
	}
	refused := map[string]struct {
		event *protos.HealthEvent
		code  codes.Code
		text  string
	}{
		"no check":     {next(func(e *protos.HealthEvent) { e.CheckName = "" }), codes.InvalidArgument, "events[0].checkName: is empty"},
		"no time":      {next(func(e *protos.HealthEvent) { e.GeneratedTimestamp = nil }), codes.InvalidArgument, "events[0].generatedTimestamp: is empty"},
		"a foreign id": {next(func(e *protos.HealthEvent) { e.Id = "1; DROP TABLE" }), codes.InvalidArgument, "events[0].id"},
		"a long name":  {next(func(e *protos.HealthEvent) { e.Agent = strings.Repeat("x", 300) }), codes.InvalidArgument, "events[0].agent: has 300 bytes"},
		"another node": {next(func(e *protos.HealthEvent) { e.NodeName = "gpu-8" }), codes.PermissionDenied, `nodeName: is "gpu-8"`},
		"CUSTOM without a name": {
			next(func(e *protos.HealthEvent) { e.RecommendedAction = protos.RecommendedAction_CUSTOM }),
			codes.InvalidArgument, "events[0].customRecommendedAction: is empty",
		},
	}
	client := p.client()
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			(&place{t: t, socket: p.socket}).refused(client, tc.event, tc.code, tc.text)
		})
	}
	if err := p.sendRaw([]byte{0x12, 0x80}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("bytes that are no message: %v", err)
	}

	big := next(func(e *protos.HealthEvent) { e.Message = strings.Repeat("m", 4<<20) })
	if _, err := client.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{big}}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a batch of more than 4 MiB: %v", err)
	}
	big.Message = strings.Repeat("m", 4<<20-1024)
	crowd := next(func(e *protos.HealthEvent) {
		e.EntitiesImpacted = make([]*protos.Entity, 1_000_000)
		for i := range e.EntitiesImpacted {
			e.EntitiesImpacted[i] = &protos.Entity{}
		}
		e.EntitiesImpacted[0] = &protos.Entity{EntityType: "GPU", EntityValue: "0"}
	})
	unknown := next(func(e *protos.HealthEvent) { e.RecommendedAction, e.ProcessingStrategy = 77, 7 })
	nul := next(func(e *protos.HealthEvent) { e.Message = "a\x00b\nc" })
	for _, e := range []*protos.HealthEvent{big, crowd, unknown, nul} {
		p.accepted(client, e)
	}
	bad := next(func(*protos.HealthEvent) {})
	if err := p.sendRaw(wire(t, bad, "not \xff UTF-8 \xc3")); err != nil {
		t.Errorf("a text that is not UTF-8: %v", err)
	}
	stored := map[string]record.Record{}
	for _, r := range awaitStored(t, p.records(), 5) {
		stored[r.ID] = r
	}
	if n := len(stored[big.GetId()].Event.Message); n != admission.MaxMessage {
		t.Errorf("the large message has %d bytes", n)
	}
	if n := len(stored[crowd.GetId()].Event.EntitiesImpacted); n != admission.MaxEntities {
		t.Errorf("%d entities are stored", n)
	}
	if r := stored[unknown.GetId()]; r.Event.RecommendedAction != record.ActionUnknown || r.Event.ProcessingStrategy != record.PersistOnly ||
		r.Event.Metadata[record.MetadataUnknownAction] != "77" || r.Event.Metadata[record.MetadataUnknownStrategy] != "7" {
		t.Errorf("unknown numbers: %+v", r.Event)
	}
	if m := stored[nul.GetId()].Event.Message; m != "a\uFFFDb c" {
		t.Errorf("NUL became %q", m)
	}
	if m := stored[bad.GetId()].Event.Message; m != "not \uFFFD UTF-8 \uFFFD" {
		t.Errorf("bad UTF-8 became %q", m)
	}
	if len(stored) != 5 {
		t.Errorf("%d records are stored", len(stored))
	}
}

// limit bounds the size of the process's files; a write beyond it fails as on a
// full disk, in the middle of an entry.
func (c *process) limit(t *testing.T, bytes uint64) {
	t.Helper()
	limit := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(c.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
}

// TestAFullDiskAcknowledgesNothingAndIsSurvived: the disk fills up under load, nothing is
// acknowledged that is not kept, and when there is space again the same process goes on.
func TestAFullDiskAcknowledgesNothingAndIsSurvived(t *testing.T) {
	p := newPlace(t, "--kubernetes=false") // the store is away: all stays in the spool
	connector := p.start()
	client := p.client()
	acked := map[string]bool{}
	seq := 0
	one := func() error {
		seq++
		e := event("a", seq)
		_, err := client.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{e}}, grpc.WaitForReady(true))
		if err == nil {
			acked[e.GetId()] = true
		}
		return err
	}
	if err := one(); err != nil {
		t.Fatal(err)
	}
	connector.limit(t, 64<<10)
	var err error
	for err == nil && seq < 10_000 {
		err = one()
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "write-ahead log could not make the records durable") {
		t.Fatalf("with a full disk, after %d events: %v", seq, err)
	}
	before := len(acked)
	for range 5 {
		if err := one(); status.Code(err) != codes.Unavailable {
			t.Errorf("with a full disk: %v", err)
		}
	}
	connector.limit(t, unix.RLIM_INFINITY)
	for range 5 {
		if err := one(); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
	connector.kill()
	p.makeStoreReachable()
	p.start()
	for _, r := range awaitStored(t, p.records(), before+5) {
		if !acked[r.ID] {
			t.Errorf("event %s is stored, but was refused", r.Event.Message)
		}
		delete(acked, r.ID)
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged events are not stored", len(acked))
	}
}

// TestDatabaseAwayUnderLoad kills the database in the middle of a storm and
// starts it again: publishers notice nothing, and everything is stored once.
func TestDatabaseAwayUnderLoad(t *testing.T) {
	server := pgtest.Own(t, pgtest.Options{})
	dsn, err := server.CreateDatabase(t.Context(), "records")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, "--kubernetes=false")
	p.store = dsn
	p.start()
	const publishers, each = 16, 60
	var acknowledged atomic.Int64
	reached := func(n int64) func() (bool, string) {
		return func() (bool, string) {
			have := acknowledged.Load()
			return have >= n, fmt.Sprintf("%d of %d events acknowledged", have, n)
		}
	}
	client := p.client()
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]int{}
	for i := range publishers {
		wg.Go(func() {
			for seq := range each {
				e := event(fmt.Sprintf("p%02d", i), seq+1)
				if err := send(t.Context(), client, e); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[e.GetId()]++
				mu.Unlock()
				acknowledged.Add(1)
			}
		})
	}
	for _, at := range []int64{200, 500} {
		await(t, reached(at))
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		await(t, reached(at+200)) // the connector stays open without a database
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		err := server.Restart(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	s, err := storeopen.Open(t.Context(), dsn, storeopen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, r := range awaitStored(t, s, publishers*each) {
		acked[r.ID]--
	}
	for id, n := range acked {
		if n != 0 {
			t.Errorf("event %s is stored %d times", id, 1-n)
		}
	}
}

// TestFullSpoolIsReportedAndDrained: without a store the spool fills to its bound,
// the publisher is asked to wait, and when the store is there all of it is stored.
func TestFullSpoolIsReportedAndDrained(t *testing.T) {
	p := newPlace(t, "--kubernetes=false", "--wal-max-bytes=16777216")
	p.args = append(p.args, "--metrics-address=127.0.0.1:0")
	connector := p.start()
	client := p.client()
	accepted := 0
	var err error
	for seq := 1; err == nil && seq < 2000; {
		var batch protos.HealthEvents
		for range 32 {
			e := event("a", seq)
			e.Message += strings.Repeat("x", admission.MaxMessage-len(e.Message)) // no repeat of another
			batch.Events = append(batch.Events, e)
			seq++
		}
		if _, err = client.HealthEventOccurredV1(t.Context(), &batch, grpc.WaitForReady(true)); err == nil {
			accepted += len(batch.Events)
		}
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "write-ahead log is full") {
		t.Fatalf("after %d events: %v", accepted, err)
	}
	if ready := get(t, connector.url(t, "/readyz")); !strings.Contains(ready, "of 16777216 bytes pending") || !strings.Contains(ready, `"ready":false`) {
		t.Errorf("readiness: %s", ready)
	}
	metrics := get(t, connector.url(t, "/metrics"))
	for _, want := range []string{`nvsentinel_connector_rejections_total{reason="wal-full"} 1`, "nvsentinel_connector_wal_max_bytes 1.6777216e+07"} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	connector.stop()
	p.makeStoreReachable()
	p.start()
	awaitStored(t, p.records(), accepted)
	p.accepted(client, event("a", 5000))
	if all, err := p.records().List(t.Context(), store.Query{Limit: 1}); err != nil || len(all) != 1 {
		t.Errorf("%d, %v", len(all), err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "spool", "log")); err != nil {
		t.Error(err)
	}
}
