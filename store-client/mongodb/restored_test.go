package mongodb

import (
	"log/slog"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
)

// TestABackupThatIsNotOfOneMoment: its append counter is older than its records.
// What is appended to the restored store comes behind them, and every place is
// given once: a page that ends between two records of one place would lose the
// second.
func TestABackupThatIsNotOfOneMoment(t *testing.T) {
	dsn := mongotest.Database(t)
	open := func() *Store {
		t.Helper()
		s, err := Open(t.Context(), dsn, Config{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Metrics: provider.NewMetrics(nil)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	add := func(ids ...string) {
		t.Helper()
		var records []record.Record
		for _, id := range ids {
			records = append(records, record.Record{ID: id, Event: record.Event{ID: id, NodeName: "n1", ProcessingStrategy: record.Process}})
		}
		if _, err := s.Append(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	at := func(id string) int64 {
		t.Helper()
		r, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return r.Append
	}
	add("a", "b", "c")
	_, err := s.db.Collection(state).UpdateOne(t.Context(), byID("append"), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(1)}}}})
	if err != nil {
		t.Fatal(err)
	}
	// An account that may append could have written the last of all places.
	if _, err := s.events().InsertOne(t.Context(), bson.D{{Key: "_id", Value: "forged"}, {Key: "append", Value: int64(math.MaxInt64)}, {Key: "createdAt", Value: "never"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	add("d")
	for _, id := range []string{"a", "b", "c"} {
		if at(id) >= at("d") {
			t.Errorf("record %s of the backup is at %d, one that was appended later at %d", id, at(id), at("d"))
		}
	}
}
