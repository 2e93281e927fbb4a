package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/store-client/store"
)

// trimmedDeadLetters: of each source by itself, and of no other.
func trimmedDeadLetters(t *testing.T, b Backend) {
	_, s := database(t, b)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	keep := func(source, id string, bytes int, age time.Duration) {
		t.Helper()
		if err := s.Dead(within(t), store.DeadLetter{ID: id, Source: source, Reason: "why", Body: make([]byte, bytes), At: now.Add(-age)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, source := range []string{"c/1", "c/10", "c", "d"} {
		keep(source, "oldest", 1, 4*time.Hour)
		keep(source, "older", 10, 3*time.Hour)
		keep(source, "old", 1, 2*time.Hour)
		keep(source, "new", 1, time.Hour)
	}
	keep("c/10", "newest", 9, time.Minute)
	trim := func(bound store.DeadLetterBound, want int) {
		t.Helper()
		if n, err := s.TrimDeadLetters(within(t), bound, now); n != want || err != nil {
			t.Errorf("%+v: %d dropped, %v, want %d", bound, n, err, want)
		}
	}
	left := func(source string, want ...string) {
		t.Helper()
		letters, err := s.DeadLetters(within(t), source)
		got := []string{}
		for _, l := range letters {
			got = append(got, l.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("left of %s: %v (-want +got):\n%s", source, err, diff)
		}
	}
	trim(store.DeadLetterBound{Source: "c/", Prefix: true}, 0)
	trim(store.DeadLetterBound{Source: "c/1", Count: 3}, 1)
	left("c/1", "new", "old", "older")
	left("c/10", "newest", "new", "old", "older", "oldest")
	trim(store.DeadLetterBound{Source: "c/", Prefix: true, Count: 4, Bytes: 12}, 2)
	left("c/1", "new", "old", "older")
	left("c/10", "newest", "new", "old")
	trim(store.DeadLetterBound{Source: "c", Prefix: true, Age: 2 * time.Hour}, 1+2)
	left("c/1", "new", "old")
	left("c", "new", "old")
	left("d", "new", "old", "older", "oldest")
	trim(store.DeadLetterBound{Source: "d", Bytes: 11}, 2)
	left("d", "new", "old")
}
