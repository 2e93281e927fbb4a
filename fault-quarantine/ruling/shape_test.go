package ruling

import (
	"maps"
	"reflect"
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
		have, want := slices.Sorted(maps.Keys(x.value.(map[string]any))), slices.Sorted(slices.Values(known(x.shape)))
		if !slices.Equal(have, want) {
			t.Errorf("%s has %v, the event %v", x.shape, want, have)
		}
	}
}
