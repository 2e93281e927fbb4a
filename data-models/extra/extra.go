// Package extra keeps what a stored document has and the program that handles it does
// not know: fields of a newer version. A document is decoded with its Extra and encoded
// with it again, so that no writer deletes what another version wrote.
package extra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Extra is what a stored document has and this version does not know, each value at
// its place. Values are trees of map[string]any, []any and the scalars of the encoding
// that they came from.
type Extra struct {
	// Fields are the members that this version does not know, by name.
	Fields map[string]any
	// In is the Extra of members that this version knows.
	In map[string]*Extra
	// Items is the Extra of the elements of a list.
	Items []Item
}

// Item is the Extra of one element of a list.
type Item struct {
	// Identity distinguishes the element from others of the list; see identityOf.
	Identity string
	Extra    *Extra
}

// Decode decodes a document of package json into a pointer, and returns what it has
// besides. known encodes what was decoded, without any Extra. Documents with an Extra
// take several times as long: there are few, or an upgrade is under way.
func Decode[T any](doc []byte, into *T, known func(T) ([]byte, error)) (*Extra, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if dec.Decode(into) == nil && ended(dec) {
		return nil, nil
	}
	*into = *new(T)
	if err := json.Unmarshal(doc, into); err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it was decoding
	}
	text, err := known(*into)
	if err != nil {
		return nil, err
	}
	return PruneJSON(doc, text)
}

// ended reports whether nothing follows what was decoded.
func ended(dec *json.Decoder) bool {
	_, err := dec.Token()
	return errors.Is(err, io.EOF)
}

// PruneJSON is Prune of documents of package json.
func PruneJSON(stored, known []byte) (*Extra, error) {
	s, err := tree(stored)
	if err != nil {
		return nil, err
	}
	k, err := tree(known)
	if err != nil {
		return nil, err
	}
	return Prune(s, k), nil
}

// MergeJSON is Merge for a document of package json that begins at a place of b.
func (e *Extra) MergeJSON(b []byte, at int) ([]byte, error) {
	if e == nil {
		return b, nil
	}
	known, err := tree(b[at:])
	if err != nil {
		return nil, err
	}
	doc, err := json.Marshal(e.Merge(known))
	if err != nil {
		return nil, fmt.Errorf("encoding the unknown fields: %w", err)
	}
	return append(b[:at], doc...), nil
}

// tree decodes a document without changing a number.
func tree(doc []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var out any
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("decoding the unknown fields: %w", err)
	}
	return out, nil
}

// Prune returns what the stored tree has and the known tree has not; nil is nothing.
// known is the stored document as this version decodes and encodes it. Names that
// differ in upper and lower case only are one name, as package json reads them.
func Prune(stored, known any) *Extra {
	switch s := stored.(type) {
	case map[string]any:
		if k, ok := known.(map[string]any); ok {
			return pruneObject(s, k)
		}
	case []any:
		if k, ok := known.([]any); ok {
			return pruneList(s, k)
		}
	}
	return nil
}

func pruneObject(stored, known map[string]any) *Extra {
	names, out := folded(known), &Extra{}
	for name, value := range stored {
		if of, ok := known[name]; ok {
			if in := Prune(value, of); in != nil {
				out.In = setKey(out.In, name, in)
			}
		} else if !names[fold(name)] {
			out.Fields = setKey(out.Fields, name, value)
		}
	}
	return out.OrNil()
}

func pruneList(stored, known []any) *Extra {
	out := &Extra{}
	for i := range min(len(stored), len(known)) {
		if in := Prune(stored[i], known[i]); in != nil {
			out.Items = append(out.Items, Item{identityOf(i, known[i]), in})
		}
	}
	return out.OrNil()
}

// Merge adds what was pruned to a tree of the same kind, which it may change. What the
// tree itself contains is never replaced; an element that is gone takes its Extra along.
func (e *Extra) Merge(tree any) any {
	if e == nil {
		return tree
	}
	switch t := tree.(type) {
	case map[string]any:
		names := folded(t)
		for name, value := range e.Fields {
			if !names[fold(name)] {
				t[name] = value
			}
		}
		for name, in := range e.In {
			if value, ok := t[name]; ok {
				t[name] = in.Merge(value)
			}
		}
	case []any:
		left := slices.Clone(e.Items)
		for i, element := range t {
			identity := identityOf(i, element)
			at := slices.IndexFunc(left, func(item Item) bool { return item.Identity == identity })
			if at >= 0 {
				t[i], left = left[at].Extra.Merge(element), slices.Delete(left, at, at+1)
			}
		}
	}
	return tree
}

// Take removes and returns the Extra of a member.
func (e *Extra) Take(name string) *Extra {
	if e == nil {
		return nil
	}
	out := e.In[name]
	if delete(e.In, name); len(e.In) == 0 {
		e.In = nil
	}
	return out
}

// OrNil is x, or nil if it is of nothing.
func (e *Extra) OrNil() *Extra {
	if e == nil || len(e.Fields) == 0 && len(e.In) == 0 && len(e.Items) == 0 {
		return nil
	}
	return e
}

// Bytes is about what the Extra takes in a document, with every number written out: a
// database may give 1e131071 back with all of its digits.
func (e *Extra) Bytes() int {
	if e == nil {
		return 0
	}
	n := 0
	for name, value := range e.Fields {
		n += len(name) + weight(value) + 4
	}
	for _, in := range e.In {
		n += in.Bytes()
	}
	for _, item := range e.Items {
		n += item.Extra.Bytes()
	}
	return n
}

// tooMany stands for more bytes than anything may have.
const tooMany = 1 << 30

// weight is about what a value takes.
func weight(value any) int {
	n := 2
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			n += len(name) + weight(member) + 4
		}
		return n
	case []any:
		for _, element := range v {
			n += weight(element) + 1
		}
		return n
	case json.Number:
		return digits(v.String())
	}
	text, err := json.Marshal(value)
	if err != nil {
		return tooMany // a tree of package json always encodes
	}
	return len(text)
}

// digits is how long a number is without an exponent, about.
func digits(number string) int {
	mantissa, exponent, has := strings.Cut(strings.ToLower(number), "e")
	if !has {
		return len(number)
	}
	e, err := strconv.Atoi(exponent)
	if err != nil || e > tooMany || e < -tooMany {
		return tooMany
	}
	return len(mantissa) + max(e, -e)
}

// identities are the members that distinguish the elements of lists: those of a record,
// and conditions.
var identities = []string{"ordinal", "key", "name", "effect", "type", "entitytype", "entityvalue"}

// identityOf is what stays the same of an element while others come and go; its place,
// for an element that has nothing of the kind.
func identityOf(place int, element any) string {
	object, _ := element.(map[string]any)
	var out []string
	for _, name := range identities {
		if value, ok := object[name]; ok {
			out = append(out, fmt.Sprintf("%s=%q", name, fmt.Sprint(value)))
		}
	}
	if len(out) == 0 {
		return fmt.Sprint(place)
	}
	return strings.Join(out, " ")
}

func folded(object map[string]any) map[string]bool {
	out := make(map[string]bool, len(object))
	for name := range object {
		out[fold(name)] = true
	}
	return out
}

// fold is the same for all names that package json takes for one.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next // the first of those that fold to each other
			}
			r = next
		}
	}, name)
}

func setKey[V any](m map[string]V, name string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[name] = value
	return m
}
