package main_test

import (
	"fmt"
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
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	_, dsn := pgtest.Database(t)
	b := newBooks(t, nil)
	records := storetest.Open(t, dsn, storeopen.Options{})
	file := configure(t, dsn, b.server.URL)
	var replicas []*process
	for range 3 {
		replicas = append(replicas, launch(t, file, "--kubeconfig="+cluster.AdminKubeconfig(), "--leader-elect", "--leader-elect-namespace="+namespace,
			"--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=1s"))
	}
	const each = 400
	sent := 0
	for len(replicas) > 0 {
		leader := await(t, replicas)
		var batch []record.Record
		for range each {
			sent++
			batch = append(batch, numbered(fmt.Sprintf("node-%d", sent%7), sent))
		}
		storetest.MustAppend(t, records, batch...)
		b.await(sent - each/2)
		for i, p := range replicas {
			if i == leader {
				p.awaitText("/readyz", `"ready":true`)
			} else {
				p.awaitText("/readyz", "standing by")
			}
		}
		if len(replicas) == 1 {
			break
		}
		replicas[leader].kill()
		replicas = append(replicas[:leader:leader], replicas[leader+1:]...)
	}
	b.await(sent)
	if got := b.have(); got != sent {
		t.Errorf("%d different events, want %d", got, sent)
	}
	replicas[0].awaitText("/readyz", "live, 0 unsettled")
	replicas[0].stop()
}

// await is the index of the replica that leads.
func await(t *testing.T, replicas []*process) (leader int) {
	t.Helper()
	testkit.Until(t, patience, func() bool {
		for i, p := range replicas {
			if _, text := p.get("/metrics"); strings.Contains(text, `nvs_lease_leading{task="events"} 1`) {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}
