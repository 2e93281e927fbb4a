package main

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

var rounds = flag.Int("rounds", 2, "how often TestKilledAtOnce kills a connector")

// TestKilledAtOnce: 64 publishers have 1,000 events acknowledged, and the
// connector is killed with SIGKILL the moment the last acknowledgement arrives.
// Every event is stored once by the next life. In every other round the store
// is away in the first life, so that the spool alone can know the events.
//
//	go test ./platform-connectors -run TestKilledAtOnce -rounds 20 -v
func TestKilledAtOnce(t *testing.T) {
	const events, publishers = 1000, 64
	for round := range *rounds {
		p := newPlace(t, "--kubernetes=false", "--log-level=error")
		away := round%2 == 1
		if !away {
			p.makeStoreReachable()
		}
		connector := p.start()
		acked := publish(t, p, events, publishers, connector)
		p.makeStoreReachable()
		second := p.start()
		all := awaitStored(t, p.records(), events)
		for _, r := range all {
			acked[r.ID]--
		}
		for id, missing := range acked {
			if missing != 0 {
				t.Errorf("round %d: event %s was acknowledged once and is stored %d times", round, id, 1-missing)
			}
		}
		t.Logf("round %d: %d events acknowledged, killed, %d stored (store away in the first life: %v)", round+1, len(acked), len(all), away)
		second.stop()
		if t.Failed() {
			return
		}
	}
}

// publish sends the events from that many publishers and kills the connector
// as soon as the last one is acknowledged. It returns the acknowledged ids.
func publish(t *testing.T, p *place, events, publishers int, connector *process) map[string]int {
	t.Helper()
	var next, done atomic.Int64
	var mu sync.Mutex
	acked := map[string]int{}
	var wg sync.WaitGroup
	client := p.client()
	for i := range publishers {
		wg.Go(func() {
			for seq := 1; next.Add(1) <= int64(events); seq++ {
				e := event(fmt.Sprintf("p%02d", i), seq)
				if err := send(t.Context(), client, e); err != nil {
					t.Error(err)
					return
				}
				if done.Add(1) == int64(events) {
					connector.kill()
				}
				mu.Lock()
				acked[e.GetId()]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(acked) != events {
		t.Fatalf("%d of %d events acknowledged", len(acked), events)
	}
	return acked
}
