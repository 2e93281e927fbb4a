package rulematch

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestTheShapeIsTheEvent: what expressions are checked against is what they are
// evaluated on.
func TestTheShapeIsTheEvent(t *testing.T) {
	e := record.Event{EntitiesImpacted: []record.Entity{{}}, QuarantineOverrides: &record.Override{}}
	value := eventValue(e)
	for _, x := range []struct {
		value any
		shape reflect.Type
	}{
		{value, reflect.TypeFor[eventShape]()}, {value["entitiesImpacted"].([]any)[0], reflect.TypeFor[entityShape]()},
		{value["quarantineOverrides"], reflect.TypeFor[overrideShape]()},
	} {
		have, want := slices.Sorted(maps.Keys(x.value.(map[string]any))), slices.Sorted(slices.Values(fieldNames(x.shape)))
		if !slices.Equal(have, want) {
			t.Errorf("%s has %v, the event %v", x.shape, want, have)
		}
	}
}

// TestThePageNamesEveryField: docs/reference/rule-sets.md is the only place that lists them.
func TestThePageNamesEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/rule-sets.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := append(fieldNames(reflect.TypeFor[eventShape]()), fieldNames(reflect.TypeFor[entityShape]())...)
	keys = append(keys, fieldNames(reflect.TypeFor[overrideShape]())...)
	for _, shape := range []reflect.Type{
		reflect.TypeFor[Set](), reflect.TypeFor[Match](), reflect.TypeFor[Rule](), reflect.TypeFor[Cordon](),
		reflect.TypeFor[record.Taint](), reflect.TypeFor[record.Label](),
	} {
		for field := range shape.Fields() {
			keys = append(keys, field.Tag.Get("toml"))
		}
	}
	for _, key := range keys {
		if !regexp.MustCompile("`[^`\n]*\\b" + key + "\\b[^`\n]*`").Match(page) {
			t.Errorf("docs/reference/rule-sets.md does not name %s", key)
		}
	}
}
