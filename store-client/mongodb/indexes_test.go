package mongodb

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
)

// TestIndexes asks the server's planner: the services' queries use the indexes
// made for them. The stand-in's planner knows an index for one condition only;
// where a query has several, it is only checked there that the index begins
// with one of them, which is what MongoDB's planner needs.
func TestIndexes(t *testing.T) {
	s, err := Open(t.Context(), mongotest.Database(t), Config{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Metrics: provider.NewMetrics(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var records []record.Record
	for i := range 20 {
		id := fmt.Sprint(i)
		records = append(records, record.Record{ID: id, Event: record.Event{ID: id, NodeName: fmt.Sprint("n", i%4), ProcessingStrategy: record.Process}})
	}
	if _, err := s.Append(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	first := map[string]string{} // field of each index
	specs, err := s.events().Indexes().ListSpecifications(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range specs {
		keys, err := x.KeysDocument.Elements()
		if err != nil {
			t.Fatal(err)
		}
		first[x.Name] = keys[0].Key()
	}
	for _, q := range []struct {
		name  string
		where bson.D
		// any of these serves the query
		want []string
	}{
		{"the open work of a node", filter(record.OpenOfNode("n1"), ""), []string{"open"}},
		{"the open work of all nodes", filter(record.OpenOfNode(""), ""), []string{"open"}},
		{"what is not judged, of a node", filter(record.BacklogOfNode("n1"), ""), []string{"backlog"}},
		{"what is not judged, of all nodes", filter(record.BacklogOfNode(""), ""), []string{"backlog"}},
		{"a node's recoveries", filter(record.Selector{Node: "n1", Strategy: record.Process, Healthy: record.Yes()}, ""), []string{"recoveries"}},
		{"a node's story", filter(record.Selector{Node: "n1"}, ""), []string{"node", "recoveries"}},
		{"a quarantine's records", filter(record.Selector{Session: "s"}, ""), []string{"session"}},
		{"a publisher's newest record", filter(record.Selector{SeqEpoch: "e"}, ""), []string{"counter"}},
		{"what has expired", due(time.Now(), time.Now()), []string{"expiry"}},
		{"what was appended behind a place", bson.D{{Key: "append", Value: bson.D{{Key: "$gt", Value: 5}}}}, []string{"append"}},
	} {
		var plan bson.M
		err := s.db.RunCommand(t.Context(), bson.D{
			{Key: "explain", Value: bson.D{{Key: "find", Value: Events}, {Key: "filter", Value: q.where}}}, {Key: "verbosity", Value: "queryPlanner"},
		}).Decode(&plan)
		if err != nil {
			t.Fatalf("%s: %v", q.name, err)
		}
		planner, _ := plan["queryPlanner"].(bson.D)
		got := indexOf(planner)
		if got == "" && conditions(q.where) > 1 && mongotest.Addr(t) != "" {
			if field := first[q.want[0]]; !slices.ContainsFunc(q.where, func(e bson.E) bool { return e.Key == field }) {
				t.Errorf("%s: index %s begins with %q, which it does not ask for", q.name, q.want[0], field)
			}
		} else if !slices.Contains(q.want, got) {
			t.Errorf("%s is served by %q, want %q\n%v", q.name, got, q.want, planner)
		}
	}
}

// conditions counts what a query asks for.
func conditions(where bson.D) (n int) {
	for _, e := range where {
		n++
		if operators, ok := e.Value.(bson.D); ok {
			n += len(operators) - 1
		}
	}
	return n
}

// indexOf is the index that the winning plan reads.
func indexOf(planner bson.D) string {
	for _, e := range planner {
		switch v := e.Value.(type) {
		case string:
			if e.Key == "indexName" {
				return v
			}
		case bson.D:
			if e.Key == "winningPlan" || e.Key == "inputStage" || e.Key == "queryPlan" {
				return indexOf(v)
			}
		}
	}
	return ""
}
