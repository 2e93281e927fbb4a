package record

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// BenchmarkDecode compares with package json, which knows nothing of an Extra: of a
// document without one, and of one with one.
func BenchmarkDecode(b *testing.B) {
	var r Record
	full(reflect.ValueOf(&r).Elem(), strings.Repeat("x", 8))
	r.Status.Remediation = nil
	doc, err := AppendJSON(nil, r)
	if err != nil {
		b.Fatal(err)
	}
	newer := append(append(doc[:len(doc)-1:len(doc)-1], `,"newer":{"x":1}`...), '}')
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var p plain
			if err := json.Unmarshal(doc, &p); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, doc := range map[string][]byte{"Decode": doc, "Decode-newer": newer} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
