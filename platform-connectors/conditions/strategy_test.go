package conditions

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestPersistOnlyEventsLeaveNoTraceInTheSet: a history with PERSIST_ONLY events
// anywhere in it, fatal, not fatal and healthy ones, makes the same set byte for
// byte as without them: the same conditions, and the same Events to write.
func TestPersistOnlyEventsLeaveNoTraceInTheSet(t *testing.T) {
	standing, notices := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var mixed, alone Set
		for i := range uint64(30) {
			gpu, code := fmt.Sprintf("GPU-%d", rng.IntN(3)), []string{"79", "48", ""}[rng.IntN(3)]
			r := fatal(i+1, gpu, code)
			switch rng.IntN(4) {
			case 0:
				r = healthy(i+1, gpu, "")
			case 1:
				r.Event.IsFatal = false
			}
			if rng.IntN(2) == 0 {
				r.Event.ProcessingStrategy = record.PersistOnly
			} else {
				alone.Fold(r)
			}
			mixed.Fold(r)
		}
		got, err := json.Marshal(mixed)
		want, err2 := json.Marshal(alone)
		if err != nil || err2 != nil || string(got) != string(want) {
			t.Fatalf("seed %d: %v, %v; with PERSIST_ONLY:\n%s\nwithout:\n%s", seed, err, err2, got, want)
		}
		standing, notices = standing+alone.Faults(), notices+len(alone.Notices)
	}
	if standing == 0 || notices == 0 {
		t.Errorf("%d faults stand and %d notices wait: too few to mean anything", standing, notices)
	}
}
