package retained

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// pair is a server and the one that takes its place, which may lack records.
type pair struct {
	mu    sync.Mutex
	name  string
	ids   []string
	away  error
	after int // calls until away counts
	calls [][]string
}

func (p *pair) AppendTo(ctx context.Context, server string, records []record.Record) (results []store.AppendResult, now string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		if p.after--; p.after < 0 {
			return nil, "", p.away
		}
	}
	if server != "" && server != p.name {
		return nil, p.name, fmt.Errorf("appending: %w", store.ErrMoved)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	var call []string
	for _, r := range records {
		call = append(call, r.ID)
		result := store.Appended
		switch {
		case r.ID == "refused":
			result = store.Refused
		case strings.HasPrefix(r.ID, "cluster") && !slices.Equal(md.Get("authorization"), []string{"good"}):
			return nil, "", errors.New("no token")
		case slices.Contains(p.ids, r.ID):
			result = store.Duplicate
		default:
			p.ids = append(p.ids, r.ID)
		}
		results = append(results, result)
	}
	if len(call) > 0 {
		p.calls = append(p.calls, call)
	}
	return results, p.name, nil
}

// fail lets the other server take over with the first n records, or away.
func (p *pair) fail(name string, n int, away error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.ids, p.away, p.after, p.calls = name, p.ids[:n], away, 0, nil
}

// node is a connector's keeper before a pair of servers.
type node struct {
	*testing.T
	dir    string
	bytes  atomic.Int64
	pair   *pair
	keeper *Keeper
}

func newNode(t *testing.T, bytes int64) *node {
	n := &node{T: t, dir: filepath.Join(t.TempDir(), "kept"), pair: &pair{name: "one"}}
	n.bytes.Store(bytes)
	n.start()
	return n
}

func (n *node) start() {
	n.Helper()
	policy := Policy{For: 10 * time.Minute, Bytes: n.bytes.Load}
	var err error
	n.keeper, err = Open(Options{n.dir, policy, clock.RealClock{}, slog.New(slog.DiscardHandler)}, n.pair, prometheus.NewRegistry())
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) stop() {
	n.Helper()
	if err := n.keeper.Close(); err != nil {
		n.Error(err)
	}
}

func (n *node) try(ctx context.Context, ids ...string) error {
	var records []record.Record
	for _, id := range ids {
		records = append(records, record.Record{ID: id})
	}
	_, err := n.keeper.Append(ctx, records)
	return err
}

func (n *node) retain(ids ...string) {
	n.Helper()
	if err := n.try(n.Context(), ids...); err != nil {
		n.Fatal(err)
	}
}

func (n *node) expect(what string, want ...string) {
	n.Helper()
	n.pair.mu.Lock()
	defer n.pair.mu.Unlock()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, n.pair.ids...)); diff != "" {
		n.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestLostRecordsAreAppendedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1<<20)
		defer n.stop()
		n.retain("old")
		<-time.After(11 * time.Minute)
		n.retain("a", "refused", "b")
		n.retain("c")
		<-time.After(5 * time.Minute)
		n.expect("nothing happened", "old", "a", "b", "c")

		n.pair.fail("two", 0, errors.New("nobody listens"))
		<-time.After(time.Hour) // the time does not run while nobody answers
		n.pair.fail("two", 0, nil)
		<-time.After(11 * time.Second)
		n.expect("after a failover, the old one's time was over", "a", "b", "c")

		n.pair.fail("three", 1, nil)
		n.retain("d")
		n.expect("what was lost goes before what is new", "a", "b", "c", "d")

		<-time.After(11 * time.Minute)
		n.pair.fail("four", 0, nil)
		<-time.After(time.Minute)
		n.expect("after the time was over")
		n.retain("e")
		n.pair.fail("five", 0, nil)
		<-time.After(11 * time.Second)
		n.expect("a server that took over while nothing was kept is known", "e")
	})
}

// TestAKilledConnectorKeeps: nothing is closed, and the last line is torn.
func TestAKilledConnectorKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 4*segmentBytes)
		n.retain("a")
		n.retain("b", "c")
		n.keeper.stop()
		segment := n.keeper.archive.segments[0].path
		f, err := os.OpenFile(segment, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString(`{"id":"tor`)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := os.WriteFile(filepath.Join(n.dir, fmt.Sprintf("%0*d", digits, 7)), []byte("no heading"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.pair.fail("two", 1, nil)
		n.start()
		n.retain("d")
		n.expect("after both had died", "a", "b", "c", "d")
		n.keeper.stop()

		// Killed in the middle of appending again: what was done is done again.
		n.start()
		for i := range batch + 400 {
			n.retain(fmt.Sprint(i))
		}
		n.pair.fail("three", 0, errors.New("away"))
		n.pair.after = 2
		if err := n.try(t.Context(), "e"); err == nil {
			t.Error("appended while the server was away")
		}
		n.keeper.stop()
		n.pair.fail("three", len(n.pair.ids), nil)
		n.start()
		n.retain("e")
		want := []string{"a", "b", "c", "d"}
		for i := range batch + 400 {
			want = append(want, fmt.Sprint(i))
		}
		n.expect("after it was killed while appending again", append(want, "e")...)
		n.stop()
	})
}

func TestOldestAreRemovedAtCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 5*segmentBytes)
		defer n.stop()
		const records = 3 << 10 // of about 4 KiB
		for i := range records {
			r := record.Record{ID: fmt.Sprint(i), Event: record.Event{Message: strings.Repeat("x", 4<<10)}}
			if _, err := n.keeper.Append(t.Context(), []record.Record{r}); err != nil {
				t.Fatal(err)
			}
		}
		if n.keeper.archive.bytes() > n.bytes.Load() {
			t.Errorf("%d bytes are kept, at most %d", n.keeper.archive.bytes(), n.bytes.Load())
		}
		n.pair.fail("two", 0, nil)
		<-time.After(11 * time.Second)
		n.pair.mu.Lock()
		got := slices.Clone(n.pair.ids)
		n.pair.mu.Unlock()
		if len(got) < 900 || len(got) > 1300 || got[len(got)-1] != fmt.Sprint(records-1) {
			t.Errorf("%d were appended again, the last is %s; want the newest of 4 to 5 MiB", len(got), got[len(got)-1])
		}
		// The spool needs the space: nothing is kept for a failover, but new records are taken.
		n.bytes.Store(0)
		n.retain("new")
		if left := n.keeper.archive.bytes(); left > 0 {
			t.Errorf("%d bytes are kept without room", left)
		}
	})
}

// TestAClusterWidePublishersRecords: the records need the publisher's token, which stays in
// memory; a token that is refused now stops no other publisher.
func TestAClusterWidePublishersRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1<<20)
		defer n.stop()
		as := func(token string) context.Context {
			return metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", token))
		}
		n.retain("a")
		if err := n.try(as("good"), "cluster-1"); err != nil {
			t.Fatal(err)
		}
		n.keeper.keep(as("bad"), "one", []record.Record{{ID: "cluster-2"}}, []store.AppendResult{store.Appended})
		files, err := filepath.Glob(filepath.Join(n.dir, "*"))
		for _, f := range files {
			if data, _ := os.ReadFile(f); strings.Contains(string(data), "cluster") || strings.Contains(string(data), "good") {
				t.Errorf("%s has it", f)
			}
		}
		if err != nil || len(files) != 1 {
			t.Errorf("%d files, %v", len(files), err)
		}
		n.pair.fail("two", 0, nil)
		<-time.After(11 * time.Second)
		n.expect("after a failover", "a", "cluster-1")
		n.retain("b")
		n.expect("what is new is not held up", "a", "cluster-1", "b")
	})
}

// TestAFaultComesBackWithItsEnd: a fault that stood alone again, until the recovery
// of minutes later is appended as well, would take a node that is well out of
// service.
func TestAFaultComesBackWithItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 4*segmentBytes)
		defer n.stop()
		as := func(token string) context.Context {
			return metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", token))
		}
		for i, what := range []string{"fault", "beside", "recovery"} {
			n.retain(what)
			n.keeper.keep(as("one"), "one", []record.Record{{ID: what + " of one's"}}, []store.AppendResult{store.Appended})
			n.keeper.keep(as("two"), "one", []record.Record{{ID: what + " of two's"}}, []store.AppendResult{store.Appended})
			if i < 2 {
				<-time.After(2 * time.Minute)
			}
		}
		n.pair.fail("two", 0, nil)
		<-time.After(11 * time.Second)
		n.pair.mu.Lock()
		calls := n.pair.calls
		n.pair.mu.Unlock()
		want := [][]string{
			{"fault", "beside", "recovery"},
			{"fault of one's", "beside of one's", "recovery of one's"},
			{"fault of two's", "beside of two's", "recovery of two's"},
		}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("appended at once (-want +got):\n%s", diff)
		}

		for _, what := range []string{"a", "b"} { // more than goes at once keeps its order
			for range 2 {
				if _, err := n.keeper.Append(t.Context(), []record.Record{{ID: what + " large", Event: record.Event{Message: strings.Repeat("x", segmentBytes*3/4)}}}); err != nil {
					t.Fatal(err)
				}
				what += what
			}
		}
		n.pair.fail("three", len(n.pair.ids)-4, nil)
		n.retain("new")
		if got, want := n.pair.ids[len(n.pair.ids)-5:], []string{"a large", "aa large", "b large", "bb large", "new"}; !slices.Equal(got, want) {
			t.Errorf("appended again: %v, want %v", got, want)
		}
	})
}

// TestAPlaceWithoutAServerKeepsNothing: a gateway of an earlier version.
func TestAPlaceWithoutAServerKeepsNothing(t *testing.T) {
	n := newNode(t, 1<<20)
	defer n.stop()
	n.pair.name = ""
	n.retain("a")
	if !n.keeper.archive.empty() {
		t.Error("something is kept of a server without a name")
	}
}

// TestUnknownFieldsAreRetained: the file of acknowledged records keeps what this version
// does not know of a record, for the server that takes over.
func TestUnknownFieldsAreRetained(t *testing.T) {
	a, err := openArchive(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.Decode([]byte(`{"id":"r1","minversion":7,"newer":{"x":1},"healthevent":{"recommendedaction":"NEWER_ACTION","newer":[null]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.append("server", time.Now(), []record.Record{r}); err != nil {
		t.Fatal(err)
	}
	got, err := a.segments[0].read()
	if diff := cmp.Diff([]record.Record{r}, got); diff != "" || err != nil {
		t.Errorf("%v (-kept +read):\n%s", err, diff)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
}
