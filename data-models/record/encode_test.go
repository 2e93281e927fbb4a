package record

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/extra"
)

// full sets every field of a value to something, so that a field which is new
// and not encoded is noticed.
func full(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*extra.Extra]() {
			return // no field of the document
		}
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem(), text)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)))
			return
		}
		for _, field := range v.Fields() {
			full(field, text)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(0), text)
		full(v.Index(1), text)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("b"+text), reflect.ValueOf(text))
		v.SetMapIndex(reflect.ValueOf("a"+text), reflect.ValueOf(text))
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-7)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	default:
		panic("a kind that records did not have: " + v.Kind().String())
	}
}

func checkJSON(t *testing.T, r Record) {
	t.Helper()
	want, failure := json.Marshal(plain(r))
	got, err := AppendJSON(nil, r)
	if (failure == nil) != (err == nil) {
		t.Fatalf("json says %v, AppendJSON %v", failure, err)
	}
	if err == nil && string(got) != string(want) {
		t.Errorf("AppendJSON differs from json:\n%s\n%s", got, want)
	}
}

func TestDocumentsAreThoseOfPackageJSON(t *testing.T) {
	checkJSON(t, Record{})
	for _, text := range []string{"plain text, 100%", "a\"b\\c<d>&e", "\x00\x1f\x7f", "\u00e4\u2028\xff", ""} {
		var r Record
		full(reflect.ValueOf(&r).Elem(), text)
		checkJSON(t, r)
		r.Status = Status{}
		checkJSON(t, r)
		r.Event.ErrorCode, r.Event.EntitiesImpacted, r.Event.Metadata = []string{}, []Entity{}, map[string]string{}
		checkJSON(t, r)
	}
	far := Record{CreatedAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}
	checkJSON(t, far)
	checkJSON(t, Record{Event: Event{GeneratedTimestamp: time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 3600))}})
}

// TestBlankMissesNoField sets one field of a status after the other.
func TestBlankMissesNoField(t *testing.T) {
	if !(Status{}).Blank() {
		t.Error("an empty status is not blank")
	}
	for i := range reflect.TypeFor[Status]().NumField() {
		var s Status
		if reflect.TypeFor[Status]().Field(i).Name == "Extra" {
			s.Extra = &extra.Extra{}
		}
		full(reflect.ValueOf(&s).Elem().Field(i), "x")
		if s.Blank() {
			t.Errorf("a status with %s is blank", reflect.TypeFor[Status]().Field(i).Name)
		}
	}
}

// FuzzText compares the escaping of texts with package json's.
func FuzzText(f *testing.F) {
	f.Add("plain")
	f.Add("<&>\u2028\xff\x00")
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if got := appendText(nil, s); err != nil || string(got) != string(want) {
			t.Errorf("%q: %s, want %s (%v)", s, got, want, err)
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	var r Record
	full(reflect.ValueOf(&r).Elem(), strings.Repeat("x", 30))
	r.Status = Status{}
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("AppendJSON", func(b *testing.B) {
		var out []byte
		for b.Loop() {
			var err error
			if out, err = AppendJSON(out[:0], r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
