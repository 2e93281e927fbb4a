package machine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// objectMax is what the API server takes of a ConfigMap.
const objectMax = 1 << 20

// spelling makes names that are random, as long as a name can be.
type spelling struct{ *rand.Rand }

func (r spelling) next() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 253)
	for i := range out {
		out[i] = letters[r.IntN(len(letters))]
	}
	return string(out)
}

func v7() (string, error) { id, err := uuid.NewV7(); return id.String(), err }

func resultOf(s Observation, policy, object, node string) EvaluationResult {
	return EvaluationResult{
		Key: Key{policy, "v1/Thing", object}, Observation: s, At: time.Now(), Wording: Wording{Message: "broken", Action: record.ActionRestartVM},
		Fault: Fault{Node: node, ComponentClass: "Node", Codes: []string{"C"}, Strategy: record.Process},
	}
}

func encoded(t *testing.T, b *Tracker) int {
	t.Helper()
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// TestATenantFillsItsShareOnly: anyone who may write in one namespace begins
// thousands of faults with names of 253 random characters. Other namespaces,
// other policies there, and the cluster's objects begin and end theirs, also
// over a restart, and the state can always be written.
func TestATenantFillsItsShareOnly(t *testing.T) {
	b, random := New("epoch"), spelling{rand.New(rand.NewPCG(1, 2))}
	refused, begun := 0, []string{}
	for range 7000 {
		object := "tenant/" + random.next()
		_, err := b.Observe(resultOf(Matched, "Events", object, "node-1"), v7)
		switch {
		case errors.Is(err, ErrShare):
			refused++
		case err != nil:
			t.Fatal(err)
		default:
			begun = append(begun, object)
		}
	}
	if refused == 0 || len(begun) == 0 {
		t.Errorf("%d faults were begun, %d refused", len(begun), refused)
	}
	again, err := Decode(mustEncode(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if again.weights.all != b.weights.all || again.weights.namespaced != b.weights.namespaced {
		t.Errorf("weighs %+v before, %+v after a restart", b.weights, again.weights)
	}
	b = again
	for _, s := range []EvaluationResult{
		resultOf(Matched, "Events", "others/real", "node-2"), resultOf(Matched, "Pods", "tenant/real", "node-2"), resultOf(Matched, "Nodes", "node-3", "node-3"),
	} {
		if d, err := b.Observe(s, v7); err != nil || !d.Report {
			t.Errorf("%v is not begun: %+v %v", s.Key, d, err)
		}
		s.Observation = Unmatched
		if d, err := b.Observe(s, v7); err != nil || !d.Recover {
			t.Errorf("%v is not recovered: %+v %v", s.Key, d, err)
		}
	}
	for _, object := range begun { // what was begun ends, and makes space
		if _, err := b.Observe(resultOf(Gone, "Events", object, ""), v7); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range b.Waiting() {
		b.Remove(w.Seq)
	}
	if w := b.weights; w.all != 0 || w.namespaced != 0 || len(w.shares) != 0 {
		t.Errorf("an empty tracker weighs %+v", w)
	}
}

func mustEncode(t *testing.T, b *Tracker) []byte {
	t.Helper()
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestStateFitsWithLongestNames: all of it filled with the longest random
// names, and then every fault ended while nothing is acknowledged.
func TestStateFitsWithLongestNames(t *testing.T) {
	b, random := New("epoch"), spelling{rand.New(rand.NewPCG(3, 4))}
	var begun []EvaluationResult
	fill := func(object func(i int) string, want error) {
		for i := 0; ; i++ {
			s := resultOf(Matched, "P", object(i), random.next())
			_, err := b.Observe(s, v7)
			if err != nil {
				if !errors.Is(err, want) {
					t.Fatal(err)
				}
				return
			}
			begun = append(begun, s)
		}
	}
	fill(func(i int) string { return fmt.Sprintf("ns-%d/%s", i, random.next()) }, ErrShare)
	namespaced := len(begun)
	fill(func(int) string { return random.next() }, ErrFull)
	if namespaced == len(begun) {
		t.Error("tenants' objects leave no room for the cluster's")
	}
	if n := encoded(t, b); n > objectMax {
		t.Errorf("%d faults take %d bytes", len(begun), n)
	}
	for _, s := range begun {
		s.Observation = Unmatched
		if _, err := b.Observe(s, v7); err != nil {
			t.Fatal(err)
		}
	}
	n := encoded(t, b)
	t.Logf("%d ended faults take %d bytes", len(begun), n)
	if n > objectMax {
		t.Errorf("%d ended faults take %d bytes", len(begun), n)
	}
}
