package extra_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/extra"
)

// TestUnknownFieldsRoundTrip: what is stored and not known is put back, each case with the stored
// document, what this version knows of it, what it makes of that, and what follows.
func TestUnknownFieldsRoundTrip(t *testing.T) {
	for name, tt := range map[string]struct{ stored, known, after, want string }{
		"nothing":                       {`{"a":1}`, `{"a":1}`, `{"a":2}`, `{"a":2}`},
		"a member":                      {`{"a":1,"x":[1,{"y":null}]}`, `{"a":1}`, `{"a":2}`, `{"a":2,"x":[1,{"y":null}]}`},
		"inside of a member":            {`{"a":{"b":1,"x":2}}`, `{"a":{"b":1}}`, `{"a":{"b":3}}`, `{"a":{"b":3,"x":2}}`},
		"inside of a removed member":    {`{"a":{"b":1,"x":2},"c":1}`, `{"a":{"b":1},"c":1}`, `{"c":1}`, `{"c":1}`},
		"inside of one that is null":    {`{"a":{"b":1,"x":2}}`, `{"a":{"b":1}}`, `{"a":null}`, `{"a":null}`},
		"a member that became known":    {`{"a":1,"x":2}`, `{"a":1}`, `{"a":1,"x":3}`, `{"a":1,"x":3}`},
		"other letters are no other":    {`{"Abc":1}`, `{"abc":1}`, `{"abc":2}`, `{"abc":2}`},
		"letters that fold":             {`{"\u212ae\u017f":1}`, `{"kes":1}`, `{"kes":2}`, `{"kes":2}`},
		"of another type than known":    {`{"a":{"x":1}}`, `{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		"elements without an identity":  {`{"l":[{"b":1,"x":1},{"b":2,"x":2}]}`, `{"l":[{"b":1},{"b":2}]}`, `{"l":[{"b":3}]}`, `{"l":[{"b":3,"x":1}]}`},
		"elements by their identity":    {`{"l":[{"key":"p","x":1},{"key":"q","x":2}]}`, `{"l":[{"key":"p"},{"key":"q"}]}`, `{"l":[{"key":"q"},{"key":"r"}]}`, `{"l":[{"key":"q","x":2},{"key":"r"}]}`},
		"equal identities in order":     {`{"l":[{"key":"p","x":1},{"key":"p","x":2}]}`, `{"l":[{"key":"p"},{"key":"p"}]}`, `{"l":[{"key":"o"},{"key":"p"},{"key":"p"},{"key":"p"}]}`, `{"l":[{"key":"o"},{"key":"p","x":1},{"key":"p","x":2},{"key":"p"}]}`},
		"an element became a scalar":    {`{"l":[{"x":1}]}`, `{"l":[{}]}`, `{"l":["s"]}`, `{"l":["s"]}`},
		"more is stored than is known":  {`{"l":[{"x":1},{"x":2}]}`, `{"l":[{}]}`, `{"l":[{},{}]}`, `{"l":[{"x":1},{}]}`},
		"numbers as they are":           {`{"x":12345678901234567890.10}`, `{}`, `{}`, `{"x":12345678901234567890.10}`},
		"an empty object is kept":       {`{"x":{}}`, `{}`, `{}`, `{"x":{}}`},
		"a list in a list":              {`{"l":[[{"x":1}]]}`, `{"l":[[{}]]}`, `{"l":[[{}]]}`, `{"l":[[{"x":1}]]}`},
		"identity and place do not mix": {`{"l":[{"name":"0","x":1},{"b":1,"x":2}]}`, `{"l":[{"name":"0"},{"b":1}]}`, `{"l":[{"b":1},{"name":"0"}]}`, `{"l":[{"b":1},{"name":"0","x":1}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := extra.PruneJSON([]byte(tt.stored), []byte(tt.known))
			if err != nil {
				t.Fatal(err)
			}
			if name == "nothing" && x != nil {
				t.Errorf("the Extra is %+v", x)
			}
			got, err := x.MergeJSON([]byte("prefix"+tt.after), len("prefix"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("prefix"+tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

type thing struct {
	A int    `json:"a"`
	B string `json:"b,omitempty"`
}

func TestDecode(t *testing.T) {
	known := func(v thing) ([]byte, error) { return json.Marshal(v) }
	for doc, want := range map[string]struct {
		thing thing
		extra string
		err   bool
	}{
		`{"a":1}`:                   {thing{A: 1}, `{}`, false},
		`{"a":1,"b":"c"}`:           {thing{1, "c"}, `{}`, false},
		`{"a":1,"x":2}`:             {thing{A: 1}, `{"x":2}`, false},
		`{"x":2,"a":1,"b":"c"}`:     {thing{1, "c"}, `{"x":2}`, false},
		`{"a":"no number"}`:         {thing{}, ``, true},
		`{"x":2,"a":"no number"}`:   {thing{}, ``, true},
		`{"a":1} {"a":2}`:           {thing{}, ``, true},
		`{"x":1} x`:                 {thing{}, ``, true},
		``:                          {thing{}, ``, true},
		`{"a":1,"x":2}` + "\n\t ":   {thing{A: 1}, `{"x":2}`, false},
		`{"a":1}` + "\n":            {thing{A: 1}, `{}`, false},
		`{"a":1,"x":{"y":[1,"2"]}}`: {thing{A: 1}, `{"x":{"y":[1,"2"]}}`, false},
	} {
		var got thing
		x, err := extra.Decode([]byte(doc), &got, known)
		if (err != nil) != want.err {
			t.Errorf("%q: %v", doc, err)
		}
		if err != nil {
			continue
		}
		rest, err := x.MergeJSON([]byte(`{}`), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got != want.thing || string(rest) != want.extra || (x == nil) != (want.extra == `{}`) {
			t.Errorf("%q is %+v and %s", doc, got, rest)
		}
	}
}

func TestTakeAndBytes(t *testing.T) {
	x, err := extra.PruneJSON([]byte(`{"a":{"x":1},"y":"12345","l":[{"z":true}]}`), []byte(`{"a":{},"l":[{}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := x.Bytes(); n < 20 || n > 40 {
		t.Errorf("it has %d bytes", n)
	}
	if a := x.Take("a"); a.Fields["x"] != json.Number("1") || x.Take("a") != nil {
		t.Errorf("taken: %+v", a)
	}
	if x.OrNil() == nil || x.Take("l") == nil || x.OrNil() == nil {
		t.Errorf("it is nothing: %+v", x)
	}
	delete(x.Fields, "y")
	var none *extra.Extra
	if x.OrNil() != nil || none.OrNil() != nil || none.Take("a") != nil || none.Bytes() != 0 {
		t.Errorf("it is something: %+v", x)
	}
}
