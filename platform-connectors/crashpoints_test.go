package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// crashingConnector is the connector with its crash points.
func crashingConnector(t *testing.T) string {
	t.Helper()
	binary, err := testkit.Binary(t.TempDir(), "node-connector")
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

const publishers, each = 4, 20

// publishAll sends events one after the other from a few publishers, and returns the ids
// that were acknowledged.
func publishAll(t *testing.T, p *place) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	acked := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	client := p.client()
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
	return acked
}

// storedOnce waits until the store has all that were acknowledged, or gets no more, and
// names those that it does not have once.
func storedOnce(t *testing.T, p *place, acked map[string]int) {
	t.Helper()
	s, stored := p.records(), map[string]int{}
	quiet, last := 0, -1
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
	for id := range acked {
		if stored[id] != 1 {
			t.Errorf("event %s was acknowledged and is stored %d times", id, stored[id])
		}
	}
}

// TestNothingAcknowledgedIsLostAtAnyCrashPoint: the first life of the connector ends at
// its crash point while events come, the second one does not.
func TestNothingAcknowledgedIsLostAtAnyCrashPoint(t *testing.T) {
	cluster, binary := localcluster.ForTest(t, localcluster.Options{}), crashingConnector(t)
	for _, point := range []string{"received", "spooled", "acknowledged", "appended", "released", "folded"} {
		for _, hit := range []int{1, 7} {
			t.Run(fmt.Sprintf("%s:%d", point, hit), func(t *testing.T) {
				p := newPlace(t, "--kubeconfig="+cluster.AdminKubeconfig())
				p.makeStoreReachable()
				p.env = []string{fmt.Sprintf("NVSENTINEL_CRASH=platform-connectors/%s:%d", point, hit)}
				first := p.connect(binary)
				again := make(chan struct{})
				go func() {
					<-first.done
					p.env = nil
					p.connect(binary)
					close(again)
				}()
				acked := publishAll(t, p)
				select {
				case <-first.done:
				default:
					first.kill() // the point was not reached
				}
				<-again
				storedOnce(t, p, acked)
			})
		}
	}
}

// TestNothingAcknowledgedIsLostDuringForwarding: all is acknowledged before the store
// is there, and only the store's reader keeps what is in the spool when the connector
// dies with the first batch.
func TestNothingAcknowledgedIsLostDuringForwarding(t *testing.T) {
	binary := crashingConnector(t)
	for _, point := range []string{"appended", "released"} {
		t.Run(point, func(t *testing.T) {
			p := newPlace(t, "--kubernetes=false")
			p.env = []string{"NVSENTINEL_CRASH=platform-connectors/" + point + ":1"}
			first := p.connect(binary)
			acked := publishAll(t, p)
			p.makeStoreReachable()
			<-first.done
			p.env = nil
			p.connect(binary)
			storedOnce(t, p, acked)
		})
	}
}

// TestAConfirmationSurvivesItsCrashPoints: the connector dies when a confirmation
// is decided and kept, and when it is in the spool and still in the outbox.
func TestAConfirmationSurvivesItsCrashPoints(t *testing.T) {
	binary := crashingConnector(t)
	for _, point := range []string{"confirmation-kept", "confirmation-spooled"} {
		t.Run(point, func(t *testing.T) {
			p := newPlace(t, "--kubernetes=false", confirming(t))
			p.makeStoreReachable()
			p.env = []string{"NVSENTINEL_CRASH=platform-connectors/" + point + ":1"}
			first := p.connect(binary)
			again := make(chan struct{})
			go func() { // it may die before it acknowledges
				<-first.done
				p.env = nil
				p.connect(binary)
				close(again)
			}()
			if err := send(t.Context(), p.client(), event("a", 1), dcgm("a", 1)); err != nil {
				t.Fatal(err)
			}
			<-again
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
