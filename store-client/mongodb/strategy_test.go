package mongodb

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// TestTheServerFiltersPersistOnly: the change streams of the services that act
// ask the server for PROCESS records, under the seed's field name; the
// exporter's asks for all.
func TestTheServerFiltersPersistOnly(t *testing.T) {
	const clause = `"fullDocument.healthevent.processingstrategy":"PROCESS"`
	for name, tt := range map[string]struct {
		pipeline mongo.Pipeline
		filters  bool
	}{
		"ProcessableHealthEventInserts":       {BuildProcessableHealthEventInsertsPipeline(), true},
		"ProcessableNonFatalUnhealthyInserts": {BuildProcessableNonFatalUnhealthyInsertsPipeline(), true},
		"NodeQuarantineStatus":                {BuildNodeQuarantineStatusPipeline(), true},
		"QuarantinedAndDrainedNodes":          {BuildQuarantinedAndDrainedNodesPipeline(), true},
		"AllHealthEventInserts":               {BuildAllHealthEventInsertsPipeline(), false},
	} {
		b, err := bson.MarshalExtJSON(bson.D{{Key: "pipeline", Value: tt.pipeline}}, false, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(b), clause); got != tt.filters {
			t.Errorf("%s: filters PROCESS: %v, want %v\n%s", name, got, tt.filters, b)
		}
	}
}
