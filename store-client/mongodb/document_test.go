package mongodb

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// asSent is a document as the driver writes it.
func asSent(t *testing.T, d document) bson.Raw {
	t.Helper()
	out, err := marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return out
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

// TestReplacementPreservesUnknownFields: a replacement preserves unknown fields at each
// level and with their type; fields of this version are written as before.
func TestReplacementPreservesUnknownFields(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.UTC)
	before := record.Record{ID: "1", Revision: 1, Status: record.Status{Remediation: &record.Remediation{Attempts: []record.Attempt{{Ordinal: 1, Name: "a"}}}}}
	after := before
	after.Revision = 2
	after.Status.Remediation = &record.Remediation{Attempts: []record.Attempt{{Ordinal: 1, Name: "a", State: "Failed"}, {Ordinal: 2, Name: "b"}}}
	was, err := encode(before, at, at)
	if err != nil {
		t.Fatal(err)
	}
	is, err := encode(after, at, at.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	same, err := replacement(asSent(t, was), was, is)
	if _, ok := same.(document); !ok || err != nil {
		t.Errorf("without anything unknown the replacement is a %T, %v", same, err)
	}
	newer, err := tree(asSent(t, was))
	if err != nil {
		t.Fatal(err)
	}
	//nolint:forcetypeassert // made above
	under := func(in any, name string) map[string]any { return in.(map[string]any)[name].(map[string]any) }
	newer.(map[string]any)["iscolumn"] = int32(5) //nolint:forcetypeassert // made above
	under(newer, "healthevent")["since"] = bson.NewDateTimeFromTime(at)
	first := under(under(newer, "healtheventstatus"), "remediation")["attempts"].([]any)[0] //nolint:forcetypeassert // made above
	first.(map[string]any)["proof"] = bson.Binary{Data: []byte{1}}                          //nolint:forcetypeassert // made above
	data, err := bson.Marshal(newer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := replacement(data, was, is)
	if err != nil {
		t.Fatal(err)
	}
	out, err := marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	doc := bson.Raw(out)
	if n, ok := doc.Lookup("iscolumn").Int32OK(); !ok || n != 5 {
		t.Errorf("a member of the document is %s", doc.Lookup("iscolumn"))
	}
	if d, ok := doc.Lookup("healthevent", "since").TimeOK(); !ok || !d.Equal(at) {
		t.Errorf("a date is %s", doc.Lookup("healthevent", "since"))
	}
	attempts := []string{"healtheventstatus", "remediation", "attempts"}
	if v := doc.Lookup(append(attempts, "0", "proof")...); v.Type != bson.TypeBinary {
		t.Errorf("of an attempt there is %s", v)
	}
	if v := doc.Lookup(append(attempts, "0", "state")...); v.StringValue() != "Failed" {
		t.Errorf("the attempt is %s", v)
	}
	if v := doc.Lookup(append(attempts, "1", "proof")...); v.Type != 0 {
		t.Errorf("of another attempt there is %s", v)
	}
	if d, ok := doc.Lookup("changedat").TimeOK(); !ok || !d.Equal(at.Add(time.Hour)) {
		t.Errorf("it was changed at %s", doc.Lookup("changedat"))
	}
	if v := doc.Lookup("healtheventstatus", "nodequarantined"); v.Type != bson.TypeNull {
		t.Errorf("nodequarantined is %s", v)
	}
}
