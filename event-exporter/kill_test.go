package eventexporter_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

var (
	howMany = flag.Int("records", 1500, "records of TestKilledInMidFlight, per store")
	kills   = flag.Int("kills", 5, "how often TestKilledInMidFlight kills the exporter")
	batch   = flag.Int("batch", 10, "events per request of TestKilledInMidFlight")
)

// nodes of the kill test.
const nodes = 50

// addresses are those of the stores under test, each empty.
func addresses(t *testing.T) map[string]string {
	t.Helper()
	_, dsn := pgtest.Database(t)
	return map[string]string{"sqlite": storetest.SQLiteDSN(t), "postgresql": dsn}
}

// configure writes a configuration file for an endpoint.
func configure(t *testing.T, dsn, endpoint string, more ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	text := fmt.Sprintf("store = %q\nsingleHost = true\n[exporter.metadata]\ncluster = \"test\"\n[exporter.backfill]\nrateLimit = 0\n"+
		"[exporter.failureHandling]\ninitialBackoff = \"10ms\"\nmaxBackoff = \"200ms\"\n[exporter.sink]\nendpoint = %q\n", dsn, endpoint)
	if err := os.WriteFile(file, []byte(text+strings.Join(more, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// unruly is a receiver that does everything a receiver can do wrong, now and
// then; poison is what it never takes.
func unruly(poison func(event.Event) bool) func(int, *http.Request, []event.Event) behaviour {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(_ int, _ *http.Request, events []event.Event) behaviour {
		if slices.ContainsFunc(events, poison) {
			return behaviour{status: []int{400, 413, 422}[rng.IntN(3)]}
		}
		switch rng.IntN(200) {
		case 0:
			return behaviour{status: 500}
		case 1:
			return behaviour{status: 429, retryAfter: "0"}
		case 2:
			return behaviour{hang: true}
		case 3:
			return behaviour{hang: true, take: true}
		case 4:
			return behaviour{}
		case 5:
			return behaviour{take: true}
		case 6:
			return behaviour{status: 401}
		case 7:
			return behaviour{status: 503, take: true}
		}
		return takes
	}
}

// TestKilledInMidFlight kills the exporter again and again while the receiver
// misbehaves: no event is lost, repeats are the same event, first deliveries
// are in order per node, and what the receiver never takes is a dead letter.
//
// With -args -records 1000000 -kills 20 it is the long one.
func TestKilledInMidFlight(t *testing.T) {
	for name, dsn := range addresses(t) {
		t.Run(name, func(t *testing.T) {
			b := newEventReceiver(t, nil)
			every := max(100, *howMany/10)
			poison := func(e event.Event) bool { return poisonous(e.ID(), every) }
			b.does(unruly(poison))
			file := configure(t, dsn, b.server.URL, "timeout = \"1s\"", fmt.Sprintf("batchSize = %d", *batch))
			records := storetest.Open(t, dsn, storeopen.Options{})
			want := fill(t, records, *howMany/2, every)
			writing := make(chan error, 1)
			go func() {
				rest := make([]record.Record, 0, *howMany)
				for i := *howMany / 2; i < *howMany; i++ {
					rest = append(rest, numbered(fmt.Sprintf("node-%d", i%nodes), i+1))
				}
				writing <- appendAll(t.Context(), records, rest)
			}()
			for i := *howMany / 2; i < *howMany; i++ {
				if !poisonous(numbered(fmt.Sprintf("node-%d", i%nodes), i+1).ID, every) {
					want++
				}
			}
			if _, err := binary(); err != nil {
				t.Fatal(err)
			}
			dead := *howMany - want
			began := time.Now()
			p := launch(t, file)
			for k := range *kills {
				b.await(want * (k + 1) / (*kills + 1))
				p.kill()
				p = launch(t, file)
			}
			b.await(want)
			took := time.Since(began)
			if err := <-writing; err != nil {
				t.Fatal(err)
			}
			// When the last one of the feed has come, all others were read again.
			storetest.MustAppend(t, records, numbered("node-0", 9_000_000))
			want++
			b.await(want)
			p.awaitText("/readyz", "live, 0 unsettled")
			p.stop()
			if got := b.have(); got != want {
				t.Errorf("%d different events, want %d", got, want)
			}
			if letters := deadLetters(t, name, dsn); len(letters) != dead || slices.ContainsFunc(letters, func(id string) bool { return !poisonous(id, every) }) {
				t.Errorf("dead letters %v, want %d", letters, dead)
			}
			requests, repeats := b.tally()
			t.Logf("%d events, %d kills: %d lost, %d repeats, %d requests, %d dead letters, in %s: %.0f/s", want, *kills, want-b.have(), repeats, requests, dead, took.Round(time.Millisecond), float64(want)/took.Seconds())
			// A receiver that is slow for a second is asked again; this run counts requests.
			nothingComesAgain(t, b, records, configure(t, dsn, b.server.URL, "timeout = \"2m\"", fmt.Sprintf("batchSize = %d", *batch)))
		})
	}
}

// poisonous reports whether a record is one of those that the receiver never
// takes.
func poisonous(id string, every int) bool {
	var n int
	_, err := fmt.Sscanf(id[strings.LastIndex(id, "-")+1:], "%d", &n)
	return err == nil && n%every == 7
}

// fill stores the first n records and returns how many of them are no poison.
func fill(t *testing.T, s store.Store, n, every int) (good int) {
	t.Helper()
	var all []record.Record
	for i := range n {
		r := numbered(fmt.Sprintf("node-%d", i%nodes), i+1)
		all = append(all, r)
		if !poisonous(r.ID, every) {
			good++
		}
	}
	if err := appendAll(t.Context(), s, all); err != nil {
		t.Fatal(err)
	}
	return good
}

func appendAll(ctx context.Context, s store.Store, records []record.Record) error {
	for part := range slices.Chunk(records, 500) {
		if _, err := s.Append(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// nothingComesAgain starts the exporter once more: after an orderly stop it
// goes on where it was.
func nothingComesAgain(t *testing.T, b *eventReceiver, s store.Store, file string) {
	t.Helper()
	b.always(http.StatusOK)
	before := b.have()
	requests, repeats := b.tally()
	p := launch(t, file)
	next := numbered("node-0", 9_999_999)
	storetest.MustAppend(t, s, next)
	b.await(before + 1)
	p.stop()
	if n, again := b.tally(); again != repeats || n != requests+1 {
		t.Errorf("after an orderly stop %d events came again, in %d requests", again-repeats, n-requests)
	}
}

// deadLetters are the ids of the exporter's dead letters.
func deadLetters(t *testing.T, provider, dsn string) []string {
	t.Helper()
	driver, source := "pgx", strings.Replace(dsn, "nvsentinel_allow_unsafe=true", "application_name=test", 1)
	if provider == "sqlite" {
		driver, source = "sqlite", strings.TrimPrefix(dsn, "sqlite://")
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT id, reason, body FROM dead_letters WHERE source = 'event-exporter' ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id, reason string
		var body []byte
		if err := rows.Scan(&id, &reason, &body); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(reason, "EventRefused: HTTP 4") || !strings.Contains(string(body), `"id":"`+id+`"`) {
			t.Errorf("dead letter %s: %s: %s", id, reason, body)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestBinaryMode sends the same event in either mode and gets the same.
func TestBinaryMode(t *testing.T) {
	seen := map[string]string{}
	for _, mode := range []string{"structured", "binary"} {
		dsn := storetest.SQLiteDSN(t)
		b := newEventReceiver(t, nil)
		b.does(func(_ int, r *http.Request, events []event.Event) behaviour {
			if got := r.Header.Get("Content-Type") == "application/cloudevents+json"; got != (mode == "structured") {
				t.Errorf("%s: content type %s", mode, r.Header.Get("Content-Type"))
			}
			seen[mode] = events[0].String()
			return takes
		})
		storetest.MustAppend(t, storetest.Open(t, dsn, storeopen.Options{}), numbered("n", 5))
		p := launch(t, configure(t, dsn, b.server.URL, fmt.Sprintf("mode = %q", mode)))
		b.await(1)
		p.awaitText("/metrics", `events_published_total{status="success",strategy="PERSIST_ONLY"} 1`)
		p.stop()
	}
	if diff := cmp.Diff(seen["structured"], seen["binary"]); diff != "" || !strings.Contains(seen["binary"], `"processingStrategy": "PERSIST_ONLY"`) {
		t.Errorf("the modes differ (-structured +binary):\n%s", diff)
	}
}
