package eventexporter_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestOneReplicaSends runs three replicas against one API server and one store.
// Only the leader sends; when it is killed in mid-flight another goes on from
// the stored position, and nothing is lost or out of order.
func TestOneReplicaSends(t *testing.T) {
	testkit.Long(t, "internal/lease covers the election, the chaos test runs replicas")
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	_, dsn := pgtest.Database(t)
	b := newEventReceiver(t, nil)
	records := storetest.Open(t, dsn, storeopen.Options{})
	file := configure(t, dsn, b.server.URL)
	replica := func() *process {
		return launch(t, file, "--kubeconfig="+cluster.AdminKubeconfig(), "--leader-elect", "--leader-elect-namespace="+namespace,
			"--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=1s")
	}
	replicas := []*process{replica(), replica(), replica()}
	const each = 400
	sent := 0
	for len(replicas) > 0 {
		await(t, replicas, replica)
		var batch []record.Record
		for range each {
			sent++
			batch = append(batch, numbered(fmt.Sprintf("node-%d", sent%7), sent))
		}
		storetest.MustAppend(t, records, batch...)
		testkit.Until(t, waitTimeout, func() bool { revive(t, replicas, replica); return b.have() >= sent-each/2 })
		leader := await(t, replicas, replica)
		if len(replicas) == 1 {
			break
		}
		replicas[leader].kill()
		replicas = append(replicas[:leader:leader], replicas[leader+1:]...)
	}
	testkit.Until(t, waitTimeout, func() bool { revive(t, replicas, replica); return b.have() >= sent })
	if got := b.have(); got != sent {
		t.Errorf("%d different events, want %d", got, sent)
	}
	replicas[0].awaitText("/readyz", "live, 0 unsettled")
	replicas[0].stop()
}

// await waits until one replica leads and the others stand by, and returns the
// index of the leader.
func await(t *testing.T, replicas []*process, replica func() *process) (leader int) {
	t.Helper()
	testkit.Until(t, waitTimeout, func() bool {
		revive(t, replicas, replica)
		leader = -1
		for i, p := range replicas {
			_, ready := p.get("/readyz")
			_, metrics := p.get("/metrics")
			switch {
			case strings.Contains(metrics, `nvsentinel_leader_election_is_leader{task="events"} 1`) && strings.Contains(ready, `"ready":true`) && leader < 0:
				leader = i
			case !strings.Contains(ready, "standing by"):
				return false
			}
		}
		return leader >= 0
	})
	return leader
}

// revive starts a replica in the place of one that the load kept from renewing
// its lease, as a Deployment does; nothing else may end one.
func revive(t *testing.T, replicas []*process, replica func() *process) {
	t.Helper()
	for i, p := range replicas {
		select {
		case <-p.over:
			if log, err := os.ReadFile(p.log); err != nil || !strings.Contains(string(log), "the lease was lost") {
				t.Fatalf("a replica ended with %v, %v", p.err, err)
			}
			replicas[i] = replica()
		default:
		}
	}
}
