package policy

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// TestOnlyAnAgeChangesByItself: a policy is evaluated again when an age passes its
// bound, and by no other comparison of durations.
func TestOnlyAnAgeChangesByItself(t *testing.T) {
	at := func(d time.Duration) time.Time { return now.Add(d) }
	for expression, want := range map[string]Match{
		// An age of 59 minutes, 1 hour, and 1 hour and a second: now is 12:00.
		`now - timestamp('2026-03-01T11:01:00Z') > duration('1h')`:                          {Flip: at(time.Minute + 1)},
		`now - timestamp('2026-03-01T11:00:00Z') > duration('1h')`:                          {Flip: at(1)},
		`now - timestamp('2026-03-01T10:59:59Z') > duration('1h')`:                          {Matched: true},
		`now - timestamp('2026-03-01T11:00:00Z') >= duration('1h')`:                         {Matched: true, Flip: at(1)},
		`duration('1h') >= now - timestamp('2026-03-01T11:01:00Z')`:                         {Matched: true, Flip: at(time.Minute + 1)},
		`duration('1h') == now - timestamp('2026-03-01T11:01:00Z')`:                         {}, // an instant that nobody waits for
		`duration(resource.spec.timeout) > duration('1h')`:                                  {Matched: true},
		`duration('1h') < duration(resource.spec.timeout)`:                                  {Matched: true},
		`duration(resource.spec.timeout) - duration('1m') < duration('3h')`:                 {Matched: true},
		`cel.bind(t, duration(resource.spec.timeout), t - duration('1m') < duration('3h'))`: {Matched: true},
		`now + duration('1h') > timestamp('2026-03-01T14:00:00Z')`:                          {},
		// One operand is no duration: the other side of the condition decides.
		`now - timestamp('2026-03-01T13:00:00Z') > resource.spec.count || resource.spec.count == 3`: {Matched: true},
		`resource.spec.count > now - timestamp('2026-03-01T13:00:00Z') || resource.spec.count == 3`: {Matched: true},
		// Of several, the earliest.
		`now - timestamp('2026-03-01T11:01:00Z') > duration('1h') || now - timestamp('2026-03-01T11:01:00Z') > duration('62m')`: {Flip: at(time.Minute + 1)},
		`now - timestamp('2026-03-01T11:01:00Z') > duration('62m') || now - timestamp('2026-03-01T11:01:00Z') > duration('1h')`: {Flip: at(time.Minute + 1)},
	} {
		set, err := Parse("f", one(expression), objects{})
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		object := map[string]any{"metadata": map[string]any{"name": "n"}, "spec": map[string]any{"timeout": "2h", "count": int64(3)}}
		if got, err := set.Policies[0].Match(object, now, nil); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", expression, got, err, want)
		}
	}
}

// TestFailureNamesProblem: for a list that has no order, or an invalid quantity. A panic
// would not name it.
func TestFailureNamesProblem(t *testing.T) {
	for expression, want := range map[string]string{
		`[{}, {}].isSorted()`:               "no such overload",
		`[{}, {}].max() == null`:            "no such overload",
		`[{}, {}].sum() == null`:            "no such overload",
		`[1, 'a'].isSorted()`:               "no such overload",
		`[].min() == null`:                  "min and max require a list that is not empty",
		`quantity('7910m').asInteger() > 0`: "quantity 7910m is not a 64-bit integer",
		`quantity('7,9') == null`:           `quantity("7,9"):`,
	} {
		set, err := Parse("f", one(expression), objects{})
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if _, err := set.Policies[0].Match(map[string]any{}, now, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "internal") {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
}

// TestAQuantityIsGivenAsItself: to CEL, which asks for a Go type, and as no other.
func TestAQuantityIsGivenAsItself(t *testing.T) {
	q := quantity{resource.MustParse("1Gi")}
	if got, err := q.ConvertToNative(reflect.TypeFor[resource.Quantity]()); err != nil || !reflect.DeepEqual(got, q.Quantity) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := q.ConvertToNative(reflect.TypeFor[int]()); err == nil || got != nil || !strings.Contains(err.Error(), "a quantity to int") {
		t.Errorf("as an int it is %v, %v", got, err)
	}
}
