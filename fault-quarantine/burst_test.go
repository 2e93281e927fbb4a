package faultquarantine_test

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

var rounds = flag.Int("rounds", 2, "how often fault-quarantine is restarted in a burst of faults")

// points are where the handler of a node can be killed.
var points = []string{"observed", "decided", "stamped", "done"}

// TestRestartInABurst kills the service with SIGKILL three times while 50 faults
// of 50 nodes arrive: in the middle of a decision, and twice with part of the
// faults evaluated. Each round every node ends in quarantine, in the session of
// its own fault.
func TestRestartInABurst(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	for round := range *rounds {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			dsn := storetest.SQLiteDSN(t)
			if round%2 == 1 {
				_, dsn = pgtest.Database(t)
			}
			burst(t, newSite(t, cluster, dsn), round)
			kind, _, _ := strings.Cut(dsn, ":")
			t.Logf("%s: 50 of 50 nodes in quarantine", kind)
		})
	}
}

func burst(t *testing.T, s *site, round int) {
	t.Helper()
	const faults = 50
	s.configure("[circuitBreaker]\npercentage = 100\n")
	names := s.nodes(fmt.Sprintf("burst%d", round), faults, nil)
	ids := make([]string, faults)
	arrive := func(from, to int) {
		for i := from; i < to; i++ {
			ids[i] = s.fault(names[i]).ID
		}
	}
	evaluated := func(n int) func() bool { return func() bool { return s.reasons()[record.Matched] >= n } }

	// It dies of itself in the middle of one of its first decisions ...
	p := s.start(fmt.Sprintf("NVSENTINEL_CRASH=fault-quarantine/%s:%d", points[round%len(points)], 1+3*round%11))
	arrive(0, 15)
	p.end()
	// ... then at once when some faults are evaluated, while others arrive ...
	p = s.start()
	testkit.Until(t, waitTimeout, evaluated(5))
	var arriving sync.WaitGroup
	arriving.Go(func() { arrive(15, 40) })
	testkit.Until(t, waitTimeout, evaluated(16+round%10))
	p.kill()
	// ... and once more before it has caught up.
	p = s.start()
	arriving.Wait()
	arriving.Go(func() { arrive(40, faults) })
	testkit.Until(t, waitTimeout, evaluated(30))
	p.kill()
	p = s.start()
	arriving.Wait()
	testkit.Until(t, waitTimeout, func() bool { return len(s.inQuarantine(names)) == faults })
	for i, name := range names {
		r := s.await(ids[i], record.Matched, record.Quarantined)
		if got := nodemark.Session(s.node(name)); got != ids[i] || r.Status.Session != ids[i] || len(r.Status.Faults) == 0 {
			t.Errorf("node %s is in session %q, its fault %s in %q", name, got, ids[i], r.Status.Session)
		}
	}
	p.stop()
}

// allow gives capacity for so many nodes, however long the test takes.
func (s *site) allow(limit int) {
	s.t.Helper()
	s.configure(fmt.Sprintf("[circuitBreaker]\nnodes = %d\npercentage = 100\nduration = \"24h\"\n", limit))
}

// TestABudgetSurvivesKills lets 20 nodes fail with capacity for 5, kills the service
// again and again, and finds 5 in quarantine every time.
func TestABudgetSurvivesKills(t *testing.T) {
	const limit = 5
	for i, point := range points {
		t.Run(point, func(t *testing.T) {
			s := newSite(t, localcluster.ForTest(t, localcluster.Options{}), storetest.SQLiteDSN(t))
			s.allow(limit)
			names := s.nodes(fmt.Sprintf("killed%d", i), 20, nil)
			for _, name := range names {
				s.fault(name)
			}
			for hit := 1; hit <= 5; hit += 2 {
				p := s.start(fmt.Sprintf("NVSENTINEL_CRASH=fault-quarantine/%s:%d", point, hit))
				p.end()
				if n := len(s.inQuarantine(names)); n > limit {
					t.Fatalf("%d nodes are in quarantine, %d allowed", n, limit)
				}
			}
			p := s.start()
			testkit.Until(t, waitTimeout, func() bool {
				r := s.reasons()
				return r[record.Matched] == limit && r[record.Held] == len(names)-limit && len(s.inQuarantine(names)) >= limit
			})
			if n := len(s.inQuarantine(names)); n != limit {
				t.Errorf("%d nodes are in quarantine, want %d", n, limit)
			}
			p.stop()
		})
	}
}

// TestALeaderIsFrozenOrKilled freezes, or kills, the leading one of two replicas
// in the middle of its first decisions. The other takes over; when the frozen
// one goes on, it adds nothing.
func TestALeaderIsFrozenOrKilled(t *testing.T) {
	testkit.Long(t, "internal/lease covers the election, the chaos test runs replicas")
	const limit = 3
	elected := func(lease, renew string) []string {
		return []string{
			"--leader-elect", "--leader-elect-lease-duration=" + lease, "--leader-elect-renew-deadline=" + renew, "--leader-elect-retry-period=1s",
		}
	}
	for i, end := range []struct{ how, point string }{{"FREEZE", "decided"}, {"FREEZE", "stamped"}, {"CRASH", "decided"}} {
		t.Run(end.how+" "+end.point, func(t *testing.T) {
			// A process frozen in mid-write keeps the lock of an SQLite file for ever.
			_, dsn := pgtest.Database(t)
			s := newSite(t, localcluster.ForTest(t, localcluster.Options{}), dsn)
			s.allow(limit)
			names := s.nodes(fmt.Sprintf("led%d", i), 10, nil)
			first := s.start(append([]string{"NVSENTINEL_" + end.how + "=fault-quarantine/" + end.point}, elected("12s", "10s")...)...)
			first.awaitMetric(`nvsentinel_leader_election_is_leader{task="events"} 1`)
			second := s.start(elected("60s", "50s")...) // outlives a stalled machine: nobody starts it again
			for _, name := range names {
				s.fault(name)
			}
			second.awaitMetric(`nvsentinel_leader_election_is_leader{task="events"} 1`)
			settled := func() bool {
				r := s.reasons()
				return r[record.Matched] == limit && r[record.Held] == len(names)-limit && len(s.inQuarantine(names)) == limit
			}
			testkit.Until(t, waitTimeout, settled)
			first.signal(syscall.SIGCONT)
			first.end()
			if first.err == nil {
				t.Error("a replica that lost its lease ended well")
			}
			if !settled() {
				t.Errorf("after the first leader's end: %s, nodes %v", pretty(s.reasons()), s.inQuarantine(names))
			}
			id := s.recovery(s.inQuarantine(names)[0]).ID
			s.await(id, record.Cleared, record.UnQuarantined)
			testkit.Until(t, waitTimeout, func() bool {
				return s.reasons()[record.Held] == len(names)-limit-1 && len(s.inQuarantine(names)) == limit
			})
			second.stop()
		})
	}
}
