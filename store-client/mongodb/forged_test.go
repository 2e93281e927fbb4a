package mongodb

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// forgeries are what an account that may append can make of a document.
var forgeries = []struct {
	name string
	// old and new edit the record inside, field and value the document around it.
	old, new string
	field    string
	value    any
}{
	{name: "no text", field: "exact", value: int32(5)},
	{name: "nothing", field: "exact", value: nil},
	{name: "no JSON", old: `{"id"`, new: `{"id`},
	{name: "much that is no JSON", field: "exact", value: strings.Repeat("x", 2<<20)},
	{name: "a place before the first", old: `"append":`, new: `"append":-`},
	{name: "another revision", old: `"revision":0`, new: `"revision":7`},
	{name: "another's id", old: `"id":"forged`, new: `"id":"gorfed`},
	{name: "a place that is text", field: "append", value: "last"},
	{name: "a place with a fraction", field: "append", value: 1.5},
	{name: "a revision that is none", field: "revision", value: "x"},
	{name: "a time that is none", field: "storedat", value: "never"},
	{name: "an id that is none", field: "_id", value: int32(7)},
	{name: "an expiry that is none", field: "expireAt", value: "never", old: `"id"`, new: `"id`},
}

// TestForgedDocuments: whatever the account that may append inserts, every list,
// page, feed and expiry comes to its end with everybody else's records.
func TestForgedDocuments(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := Open(ctx, mongotest.Database(t), Config{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Metrics: provider.NewMetrics(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	add := func(id string) {
		t.Helper()
		r := record.Record{ID: id, Event: record.Event{ID: id, NodeName: "n", ProcessingStrategy: record.Process}}
		if _, err := s.Append(ctx, []record.Record{r}); err != nil {
			t.Fatal(err)
		}
	}
	feed := func(consumer string) func(want string) {
		f, err := s.Feed(ctx, consumer, record.ProcessableHealthEventInserts())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return func(want string) {
			t.Helper()
			if r, _, err := f.Next(ctx); err != nil || r.ID != want {
				t.Fatalf("feed of %s: %q, %v; want %q", consumer, r.ID, err, want)
			}
		}
	}
	add("first")
	follows := feed("follows")
	follows("first")
	for i := range forgeries {
		forge(ctx, t, s, i)
	}
	add("last")
	follows("last")
	reads := feed("reads")
	reads("first")
	reads("last")
	for _, order := range []store.Order{store.ByAppend, store.ByAppendDescending} {
		var got []string
		err := store.Pages(ctx, s, store.Query{Selector: record.BacklogOfNode("n"), Order: order, Limit: 1}, func(page []record.Record) error {
			got = append(got, page[0].ID)
			return nil
		})
		want := map[store.Order][]string{store.ByAppend: {"first", "last"}, store.ByAppendDescending: {"last", "first"}}[order]
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("order %d: %v (-want +got):\n%s", order, err, diff)
		}
	}
	if n, err := s.Expire(ctx, time.Now()); n != 0 || err != nil {
		t.Errorf("expired %d, %v", n, err)
	}
	letters, err := s.DeadLetters(ctx, store.Undecodable)
	if err != nil || len(letters) != len(forgeries) {
		t.Errorf("%d dead letters, %v; want %d", len(letters), err, len(forgeries))
	}
}

// forge inserts a document like that of the first record, with one lie in it.
func forge(ctx context.Context, t *testing.T, s *Store, n int) {
	t.Helper()
	f := forgeries[n]
	place, _, err := s.reserve(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	var doc bson.D
	if err := s.events().FindOne(ctx, byID("first")).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("forged-%d", n)
	for i := range doc {
		switch e := &doc[i]; e.Key {
		case "_id":
			e.Value = id
		case "append":
			e.Value = place
		case "exact":
			exact := strings.NewReplacer(`"first"`, `"`+id+`"`, `"append":1,`, fmt.Sprintf(`"append":%d,`, place)).Replace(e.Value.(string))
			if f.old != "" && !strings.Contains(exact, f.old) {
				t.Fatalf("%s: %s is not in %s", f.name, f.old, exact)
			}
			e.Value = strings.Replace(exact, f.old, f.new, 1)
		}
		if f.field != "" && doc[i].Key == f.field {
			doc[i].Value = f.value
		}
	}
	if _, err := s.events().InsertOne(ctx, doc); err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
}
