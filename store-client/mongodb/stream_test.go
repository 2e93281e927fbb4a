package mongodb_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/mongodb"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// event is a change as a stream bears it.
type event struct {
	ID       string
	Revision int64
}

// TestPipelines compares what the server sends for each selector with the
// selector's meaning, over insertions and changes of generated records.
func TestPipelines(t *testing.T) {
	dsn := mongotest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	rng := rand.New(rand.NewPCG(7, 79))
	type pair struct {
		selector record.Selector
		pipeline mongo.Pipeline
	}
	pairs := []pair{
		{record.AllHealthEventInserts(), mongodb.BuildAllHealthEventInsertsPipeline()},
		{record.ProcessableHealthEventInserts(), mongodb.BuildProcessableHealthEventInsertsPipeline()},
		{record.ProcessableNonFatalUnhealthyInserts(), mongodb.BuildProcessableNonFatalUnhealthyInsertsPipeline()},
		{record.NodeQuarantineStatus(), mongodb.BuildNodeQuarantineStatusPipeline()},
		{record.QuarantinedAndDrainedNodes(), mongodb.BuildQuarantinedAndDrainedNodesPipeline()},
	}
	others := []record.Selector{{}, record.OpenOfNode(""), record.BacklogOfNode("node-a")}
	for range 40 {
		others = append(others, storetest.GenerateSelector(rng))
	}
	for _, sel := range others {
		pairs = append(pairs, pair{sel, mongodb.Pipeline(sel)})
	}
	events := raw(t, dsn).Collection(mongodb.Events)
	watch := func(p mongo.Pipeline) *mongo.ChangeStream {
		stream, err := events.Watch(t.Context(), p, options.ChangeStream().SetMaxAwaitTime(50*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close(context.WithoutCancel(t.Context())) })
		return stream
	}
	everything := watch(mongo.Pipeline{})
	var streams []*mongo.ChangeStream
	for _, p := range pairs {
		streams = append(streams, watch(p.pipeline))
	}
	records := storetest.Inserted()
	for range 30 {
		records = append(records, storetest.Generate(rng))
	}
	storetest.Seed(t, s, records...)
	last := storetest.Record("the end")
	storetest.MustAppend(t, s, last)
	all := read(t, everything, last.ID)
	if len(all) < 60 {
		t.Fatalf("%d changes: too few to mean anything", len(all))
	}
	for i, p := range pairs {
		sel := p.selector
		var want []event
		for _, c := range all {
			if sel.Matches(c.record) && (c.inserted || !sel.InsertsOnly) {
				want = append(want, event{c.record.ID, c.record.Revision})
			}
		}
		var got []event
		for _, c := range drain(t, streams[i], len(want)) {
			got = append(got, event{c.record.ID, c.record.Revision})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-meaning +server):\n%s", sel, diff)
		}
	}
}

type changed struct {
	record   record.Record
	inserted bool
}

func decode(t *testing.T, stream *mongo.ChangeStream) changed {
	t.Helper()
	var c struct {
		OperationType string `bson:"operationType"`
		FullDocument  struct{ Exact string }
	}
	err := stream.Decode(&c)
	var r record.Record
	if err == nil {
		err = json.Unmarshal([]byte(c.FullDocument.Exact), &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return changed{r, c.OperationType == "insert"}
}

// read takes a stream's events up to the insertion of a record.
func read(t *testing.T, stream *mongo.ChangeStream, last string) (out []changed) {
	t.Helper()
	for stream.Next(t.Context()) {
		out = append(out, decode(t, stream))
		if out[len(out)-1].record.ID == last {
			return out
		}
	}
	t.Fatal(stream.Err())
	return nil
}

// drain takes the n events that are wanted, and one more if it is there.
func drain(t *testing.T, stream *mongo.ChangeStream, n int) (out []changed) {
	t.Helper()
	for len(out) < n && stream.Next(t.Context()) {
		out = append(out, decode(t, stream))
	}
	if stream.TryNext(t.Context()) {
		out = append(out, decode(t, stream))
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// own is a server of the test's own, which may be killed.
func own(t *testing.T, flags ...string) *mongotest.Server {
	t.Helper()
	mongotest.Need(t)
	server, err := mongotest.Start(t.Context(), mongotest.Options{Flags: flags})
	if errors.Is(err, mongotest.ErrNone) {
		t.Skip(err) // a server by URI is not ours to kill
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestHistoryLost: the server has thrown away what the stored token stands
// behind; the consumer reads again and misses nothing.
func TestHistoryLost(t *testing.T) {
	server := own(t, "--oplog-max-entries", "100")
	registry := prometheus.NewRegistry()
	s := storetest.Open(t, server.DSN("records"), storeopen.Options{Registerer: registry})
	sel := record.ProcessableHealthEventInserts()
	first := storetest.Record("n")
	storetest.MustAppend(t, s, first)
	f, err := s.Feed(t.Context(), "c", sel)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Receive(t, f, 1)
	second := storetest.Record("n")
	storetest.MustAppend(t, s, second)
	storetest.Receive(t, f, 1) // now the position is a token of the stream
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	missed := storetest.Record("n")
	storetest.MustAppend(t, s, missed)
	// The server prunes every thousand changes.
	client := raw(t, server.DSN("noise")).Collection("noise")
	var noise []any
	for i := range 1100 {
		noise = append(noise, bson.D{{Key: "n", Value: i}})
	}
	if _, err := client.InsertMany(t.Context(), noise); err != nil {
		t.Fatal(err)
	}
	if f, err = s.Feed(t.Context(), "c", sel); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The margin of the mark brings the committed ones again.
	seen := map[string]bool{}
	for _, r := range storetest.Receive(t, f, 3) {
		seen[r.ID] = true
	}
	if !seen[missed.ID] {
		t.Errorf("the record stored while the consumer was away is missed: %v", seen)
	}
	if n := promtest.CollectAndCount(registry, "nvsentinel_store_feed_rescans_total"); n != 1 {
		t.Errorf("%d kinds of rescans counted, want one", n)
	}
}

// TestCollectionDropped drops, renames and restores the collection of a feed: the feed
// continues, and so do appends.
func TestCollectionDropped(t *testing.T) {
	for name, gone := range map[string]func(t *testing.T, db *mongo.Database) error{
		"collection dropped": func(t *testing.T, db *mongo.Database) error {
			return db.Collection(mongodb.Events).Drop(t.Context())
		},
		"database dropped": func(t *testing.T, db *mongo.Database) error { return db.Drop(t.Context()) },
		"collection renamed": func(t *testing.T, db *mongo.Database) error {
			from, to := db.Name()+"."+mongodb.Events, db.Name()+".Old"
			return db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "renameCollection", Value: from}, {Key: "to", Value: to}}).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			dsn := mongotest.Database(t)
			s := storetest.Open(t, dsn, storeopen.Options{})
			f, err := s.Feed(t.Context(), "c", record.ProcessableHealthEventInserts())
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			before, after := storetest.Record("n"), storetest.Record("n")
			storetest.MustAppend(t, s, before)
			storetest.Receive(t, f, 1)
			if err := gone(t, raw(t, dsn)); err != nil {
				t.Fatal(err)
			}
			storetest.MustAppend(t, s, after)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			for {
				r, _, err := f.Next(ctx)
				if ctx.Err() != nil {
					t.Fatalf("the feed is deaf: %v", err)
				}
				if err == nil && r.ID == after.ID {
					return
				}
			}
		})
	}
}

// records is how many TestServerKilled appends. The stand-in syncs each one by
// itself, so 10,000 take minutes: go test -run TestServerKilled -args -records 10000.
var records = flag.Int("records", 600, "records appended by TestServerKilled")

// TestServerKilled kills the server in the middle of many appended records:
// every acknowledged one is there once, and every consumer has seen it.
func TestServerKilled(t *testing.T) {
	server := own(t)
	storetest.Killed(t, server, server.DSN("records"), *records)
}

// notPrimary is how long TestNotPrimary's server refuses writes:
// go test -run TestNotPrimary -args -not-primary 30s.
var notPrimary = flag.Duration("not-primary", 3*time.Second, "how long the server of TestNotPrimary refuses writes")

// stepping is a server that does not die but steps down, and is primary again
// by itself.
type stepping struct{ *mongotest.Server }

func (s stepping) Slay() error { return s.StepDown(context.Background(), *notPrimary) }

func (s stepping) Restart(context.Context) error { return nil }

// TestNotPrimary has the server refuse every write in the middle of many
// appended records, as a primary does that has lost an election: nothing is
// lost, nothing is stored twice, and the consumers go on.
func TestNotPrimary(t *testing.T) {
	server := own(t)
	storetest.Killed(t, stepping{server}, server.DSN("records"), 300)
}
