package machine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// named makes names of length bytes that differ.
func named(prefix string, length, i int) string {
	return fmt.Sprintf("%s%0*d", prefix, length-len(prefix), i)
}

// stateBounds are the bounds of what the state weighs, each with the objects that fill it:
// a name of so many bytes, of which i makes another one.
var stateBounds = map[string]struct {
	object  func(length, i int) string
	left    func(w weights) int
	want    error
	message string
}{
	"all of the state": {
		func(length, i int) string { return named("node-", length, i) },
		func(w weights) int { return MaxBytes - w.all }, ErrFull, "opening a fault of P: too many",
	},
	"what is for namespaces": {
		func(length, i int) string { return named(fmt.Sprintf("team-%04d/", i), length, i) },
		func(w weights) int { return maxNamespaced - w.namespaced }, ErrShare, "opening a fault of P in team-",
	},
	"one policy's share of a namespace": {
		func(length, i int) string { return named("team/", length, i) },
		func(w weights) int { return maxShare - w.shares[share{"P", "team"}] }, ErrShare, "opening a fault of P in team: too many",
	},
}

// TestFaultFillsItsCapacity: a fault that takes with its event all that is left is
// begun; one whose name is a byte longer is not, nor one with a second code, which is
// an event more.
func TestFaultFillsItsCapacity(t *testing.T) {
	const node, longest = "n", 200
	weighs := func(length int) int { return openBytes + eventBytes + 2*(length+len(node)) }
	for name, capacity := range stateBounds {
		t.Run(name, func(t *testing.T) {
			b, i := New("epoch"), 0
			see := func(length int, codes ...string) error {
				i++
				s := resultOf(Matched, "P", capacity.object(length, i), node)
				s.Fault.Codes = codes
				_, err := b.Observe(s, v7)
				return err
			}
			for capacity.left(b.weights) > weighs(longest)+weighs(longest/2) {
				if err := see(longest, "A"); err != nil {
					t.Fatal(err)
				}
			}
			if left := capacity.left(b.weights); left > weighs(longest) {
				if err := see((left-weighs(longest/2))/2, "A"); err != nil {
					t.Fatal(err)
				}
			}
			fits := (capacity.left(b.weights) - weighs(0)) / 2
			for what, err := range map[string]error{"a byte more": see(fits+1, "A"), "a code more": see(fits, "A", "B")} {
				if !errors.Is(err, capacity.want) || !strings.Contains(err.Error(), capacity.message) {
					t.Errorf("%s gives %v, want %q", what, err, capacity.message)
				}
			}
			if err := see(fits, "A"); err != nil || capacity.left(b.weights) != 0 {
				t.Errorf("a fault that fits is not begun: %v; %d bytes are left", err, capacity.left(b.weights))
			}
		})
	}
}

// TestOpenFaultNeedsNoCapacity: in a state that is full a fault stays, moves to another
// node and ends; only another one is not begun.
func TestOpenFaultNeedsNoCapacity(t *testing.T) {
	b := New("epoch")
	var err error
	for i := 0; err == nil; i++ {
		_, err = b.Observe(resultOf(Matched, "P", named("node-", 250, i), "n"), v7)
	}
	first := named("node-", 250, 0)
	for _, c := range []struct {
		what string
		seen EvaluationResult
		want Decision
		err  error
	}{
		{"another fault", resultOf(Matched, "P", named("node-", 250, 9999), "n"), Decision{Reason: Began, Report: true}, ErrFull},
		{"an object without a fault", resultOf(Unmatched, "P", named("node-", 250, 9999), "n"), Decision{Reason: NoFault}, nil},
		{"the same fault", resultOf(Matched, "P", first, "n"), Decision{Reason: Stays}, nil},
		{"the same on another node", resultOf(Matched, "P", first, "m"), Decision{Reason: Moved, Recover: true, Report: true}, nil},
		{"its end", resultOf(Unmatched, "P", first, "m"), Decision{Reason: Ended, Recover: true}, nil},
	} {
		if got, err := b.Observe(c.seen, v7); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.what, got, err, c.want, c.err)
		}
	}
}
