package mongodb

import (
	"bytes"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// asSent is a document as the driver writes it.
func asSent(t *testing.T, d document) bson.Raw {
	t.Helper()
	var out bytes.Buffer
	e := bson.NewEncoder(bson.NewDocumentWriter(&out))
	e.SetRegistry(registry())
	e.UseJSONStructTags()
	if err := e.Encode(d); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestUnsetNodeQuarantinedIsNull: a query for null finds what fault-quarantine has
// not touched.
func TestUnsetNodeQuarantinedIsNull(t *testing.T) {
	for value, want := range map[record.Quarantine]bson.Type{record.NotQuarantined: bson.TypeNull, record.Quarantined: bson.TypeString} {
		d, err := encode(record.Record{ID: "1", Status: record.Status{NodeQuarantined: value}}, time.Time{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if got := asSent(t, d).Lookup("healtheventstatus", "nodequarantined"); got.Type != want {
			t.Errorf("%q is stored as %s, want %s", value, got, want)
		}
	}
}
