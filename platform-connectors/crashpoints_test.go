//go:build crashpoints

package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// crash sends events one after the other from a few publishers; the first life
// of the connector ends at its crash point, the second one does not. It returns
// the ids that were acknowledged and those that are stored in the end.
func crash(t *testing.T, p *place, env ...string) (acked, stored map[string]int) {
	t.Helper()
	p.makeStoreReachable()
	p.env = env
	first := p.start()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	again := make(chan struct{})
	go func() {
		<-first.done
		p.env = nil
		p.start()
		close(again)
	}()
	acked, stored = map[string]int{}, map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	client := p.client()
	const publishers, each = 4, 20
	for i := range publishers {
		wg.Go(func() {
			for seq := range each {
				e := event(fmt.Sprint("p", i), seq+1)
				if err := send(ctx, client, e); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[e.GetId()]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	select {
	case <-first.done:
	default:
		first.kill() // the point was not reached: the caller asked for a later end
	}
	<-again
	s := p.records()
	quiet := 0
	last := -1
	await(t, func() (bool, string) {
		all, err := s.List(t.Context(), store.Query{})
		if err != nil {
			return false, err.Error()
		}
		clear(stored)
		for _, r := range all {
			stored[r.ID]++
		}
		if quiet++; len(all) != last {
			quiet, last = 0, len(all)
		}
		return len(all) == publishers*each || quiet > 500, fmt.Sprintf("%d stored", len(all))
	})
	return acked, stored
}

func TestNothingAcknowledgedIsLostAtAnyCrashPoint(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	for _, point := range []string{"received", "spooled", "acknowledged", "appended", "released", "folded"} {
		for _, hit := range []int{1, 7} {
			t.Run(fmt.Sprintf("%s:%d", point, hit), func(t *testing.T) {
				p := newPlace(t, "--kubeconfig="+cluster.AdminKubeconfig())
				acked, stored := crash(t, p, fmt.Sprintf("NVSENTINEL_CRASH=platform-connectors/%s:%d", point, hit))
				for id := range acked {
					if stored[id] != 1 {
						t.Errorf("event %s was acknowledged and is stored %d times", id, stored[id])
					}
				}
			})
		}
	}
}

// TestSabotageIsNoticed keeps the test above honest: with the durability taken
// away, the same storm loses events.
func TestSabotageIsNoticed(t *testing.T) {
	tests := map[string][]string{
		"drop-fsync": {
			"NVSENTINEL_SABOTAGE=platform-connectors/drop-fsync", "NVSENTINEL_CRASH=platform-connectors/acknowledged:20",
		},
		"release-before-append": {
			"NVSENTINEL_SABOTAGE=platform-connectors/release-before-append", "NVSENTINEL_CRASH=platform-connectors/released:1",
		},
	}
	for name, env := range tests {
		t.Run(name, func(t *testing.T) {
			acked, stored := crash(t, newPlace(t, "--kubernetes=false"), env...)
			lost := 0
			for id := range acked {
				if stored[id] == 0 {
					lost++
				}
			}
			if lost == 0 {
				t.Errorf("none of %d acknowledged events was lost", len(acked))
			}
		})
	}
}

// TestAConfirmationSurvivesItsCrashPoints: the connector dies when a confirmation
// is decided and kept, and when it is in the spool and still in the outbox.
func TestAConfirmationSurvivesItsCrashPoints(t *testing.T) {
	for _, point := range []string{"confirmation-kept", "confirmation-spooled"} {
		t.Run(point, func(t *testing.T) {
			p := newPlace(t, "--kubernetes=false", confirming(t))
			p.makeStoreReachable()
			p.env = []string{"NVSENTINEL_CRASH=platform-connectors/" + point + ":1"}
			first := p.start()
			if err := send(t.Context(), p.client(), event("a", 1), dcgm("a", 1)); err != nil {
				t.Fatal(err)
			}
			<-first.done
			p.env = nil
			p.start()
			if err := send(t.Context(), p.client(), event("b", 1)); err != nil {
				t.Fatal(err)
			}
			all := awaitStored(t, p.records(), 4)
			if got := confirmations(all); len(all) != 4 || len(got) != 1 || got[event("a", 1).GetId()] != 1 {
				t.Errorf("%d records, confirmed %v", len(all), got)
			}
		})
	}
}
