package spool

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// full is a record with a value in every field that the connector sets; a field of
// the event that is added later is filled too.
func full(t *testing.T) record.Record {
	t.Helper()
	r := rec(1, "text")
	r.CreatedAt = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	r.Node = record.NodeIdentity{UID: "uid", ProviderID: "provider", SystemUUID: "system", BootID: "boot"}
	r.Seq, r.SeqEpoch = 1<<62, "epoch"
	e := reflect.ValueOf(&r.Event).Elem()
	for i := range e.NumField() {
		fill(t, e.Type().Field(i).Name, e.Field(i))
	}
	r.Event.ID = r.ID
	return r
}

func fill(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *string:
		*x = "value of " + name
	case *bool:
		*x = true
	case *uint32:
		*x = 7
	case *record.Action:
		*x = record.ActionCustom
	case *record.Strategy:
		*x = record.PersistOnly
	case *[]string:
		*x = []string{"79", ""}
	case *map[string]string:
		*x = map[string]string{"key": "value", "": ""}
	case *[]record.Entity:
		*x = []record.Entity{{EntityType: "GPU", EntityValue: "0"}, {}}
	case *time.Time:
		*x = time.Date(2026, 3, 1, 11, 59, 0, 123456000, time.UTC)
	case *[]byte:
		*x = []byte{0x98, 0x06, 0x01} // field 99 of the wire's message
	case **extra.Extra: // what no field is for; see the cases
	case **record.Override:
		*x = &record.Override{Force: true}
	default:
		t.Fatalf("field %s has a type that this test does not know: is it spooled?", name)
	}
}

func TestSpooledRecordIsTheOneThatWasAppended(t *testing.T) {
	tests := map[string]struct {
		change func(*record.Record)
		json   bool
	}{
		"as the connector makes them": {func(*record.Record) {}, false},
		"a recovery with no lists":    {func(r *record.Record) { r.Event.ErrorCode, r.Event.EntitiesImpacted, r.Event.Metadata = nil, nil, nil }, false},
		"no machine, a low counter":   {func(r *record.Record) { r.Node, r.Seq = record.NodeIdentity{}, 1 }, false},
		"an override without a wish":  {func(r *record.Record) { r.Event.DrainOverrides = &record.Override{} }, false},
		"no time":                     {func(r *record.Record) { r.Event.GeneratedTimestamp = time.Time{} }, false},
		"an action without a number":  {func(r *record.Record) { r.Event.RecommendedAction = "" }, true},
		"a strategy without a number": {func(r *record.Record) { r.Event.ProcessingStrategy = "OTHER" }, true},
		"an empty list":               {func(r *record.Record) { r.Event.ErrorCode = []string{} }, true},
		"empty metadata":              {func(r *record.Record) { r.Event.Metadata = map[string]string{} }, true},
		"a stamped record":            {func(r *record.Record) { r.Status.Session = "s" }, true},
		"a changed event":             {func(r *record.Record) { r.Accepted = "digest" }, true},
		"a time out of range":         {func(r *record.Record) { r.CreatedAt = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC) }, true},
		"a member of a newer version": {func(r *record.Record) { r.Event.Extra = &extra.Extra{Fields: map[string]any{"newer": []any{"x"}}} }, true},
		"one of the record":           {func(r *record.Record) { r.Extra = &extra.Extra{Fields: map[string]any{"newer": nil}} }, true},
		"for a newer version":         {func(r *record.Record) { r.MinVersion = 2 }, true},
		"an action of a newer one":    {func(r *record.Record) { r.Event.RecommendedAction = "NEWER_ACTION" }, true},
		"a finer time":                {func(r *record.Record) { r.Event.GeneratedTimestamp = r.Event.GeneratedTimestamp.Add(1) }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := full(t)
			tc.change(&want)
			f, err := newFrame(want)
			if err != nil {
				t.Fatal(err)
			}
			if isJSON := f.body[0] == '{'; isJSON != tc.json {
				t.Errorf("spooled as JSON: %v", isJSON)
			}
			back, _, ok := decode(f.append(nil))
			if !ok {
				t.Fatal("the frame is damaged")
			}
			got, err := decodeRecord(back)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-appended +read):\n%s", diff)
			}
			if !reflect.DeepEqual(want, got) || record.Digest(want.Event) != record.Digest(got.Event) {
				t.Error("the record read back is another one")
			}
		})
	}
}

// TestSpoolOfAnEarlierVersionIsRead: bodies were JSON documents.
func TestSpoolOfAnEarlierVersionIsRead(t *testing.T) {
	want := full(t)
	f, err := newFrame(want)
	if err != nil {
		t.Fatal(err)
	}
	if f.body, err = json.Marshal(want); err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

func TestAFieldOfALaterVersionIsPassedAndNonsenseIsAnError(t *testing.T) {
	want := full(t)
	f, err := newFrame(want)
	if err != nil {
		t.Fatal(err)
	}
	whole := f.body
	f.body = appendText(append([]byte(nil), whole...), 99, "later")
	if got, err := decodeRecord(f); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with a later version's field: %v, %v", got, err)
	}
	for _, body := range []string{"\x0a", "\x0a\x05ab", "\x0a\x02\x08", "\xff\xff", "{"} {
		f.body = []byte(body)
		if _, err := decodeRecord(f); err == nil {
			t.Errorf("body %q was read", body)
		}
	}
}

func TestResentEventHasTheSameDigestAndAnotherOneHasNot(t *testing.T) {
	s := open(t, options(t.TempDir()))
	r, other := full(t), full(t)
	for i := range 20 { // maps have no order
		key := string(rune('a' + i))
		r.Event.Metadata[key], other.Event.Metadata[key] = key, key
	}
	for range 5 {
		r.CreatedAt = r.CreatedAt.Add(time.Second) // a re-sent event comes later
		add(t, s, r)
	}
	if _, last := s.Bounds(); last != 1 {
		t.Errorf("one event sent five times has %d entries", last)
	}
	other.Event.Metadata["a"] = "changed"
	add(t, s, other)
	if _, last := s.Bounds(); last != 2 {
		t.Errorf("other content under the same id: %d entries, want 2", last)
	}
}
