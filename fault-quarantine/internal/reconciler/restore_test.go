package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// vault is a kind of store with backups.
type vault struct {
	dsn string
	// backup copies a closed store and returns the address of the copy.
	backup func(t *testing.T, dsn string) string
	// empty is the address of another, empty store.
	empty func(t *testing.T) string
}

func vaults(t *testing.T) map[string]vault {
	_, dsn := pgtest.Database(t)
	all := map[string]vault{
		"sqlite": {dsn: storetest.SQLiteDSN(t), empty: func(t *testing.T) string { return storetest.SQLiteDSN(t) }, backup: func(t *testing.T, dsn string) string {
			from, to := strings.TrimPrefix(dsn, "sqlite://"), storetest.SQLiteDSN(t)
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(strings.TrimPrefix(to, "sqlite://"), content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return to
		}},
		"postgresql": {dsn: dsn, empty: func(t *testing.T) string { _, dsn := pgtest.Database(t); return dsn }, backup: func(t *testing.T, dsn string) string {
			name := dsn[strings.LastIndex(dsn, "/")+1:]
			name, _, _ = strings.Cut(name, "?")
			if err := pgtest.Shared(t).Exec(t.Context(), "postgres", fmt.Sprintf("CREATE DATABASE %s_backup TEMPLATE %s", name, name)); err != nil {
				t.Fatal(err)
			}
			return pgtest.Shared(t).DSN(name + "_backup")
		}},
	}
	server, err := mongotest.Start(t.Context(), mongotest.Options{})
	if errors.Is(err, mongotest.ErrNone) {
		t.Logf("the runbook is not followed on MongoDB: %v", err)
		return all
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	all["mongodb"] = vault{dsn: server.DSN("life"), empty: func(*testing.T) string { return server.DSN("empty") }, backup: func(t *testing.T, _ string) string {
		if err := server.Copy(t.Context(), "life", "backup"); err != nil {
			t.Fatal(err)
		}
		return server.DSN("backup")
	}}
	return all
}

// openVault opens a store that the test closes itself.
func openVault(t *testing.T, dsn string) store.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := storeopen.Open(ctx, dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// restoredFleet are nodes in the state of docs/tasks/back-up-and-restore.md: healed was
// released after the backup, sick went into quarantine after it, stays was and is
// in quarantine.
type restoredFleet struct {
	t     *testing.T
	d     *reconciler.Reconciler
	nodes *racks
	fault map[string]record.Record
}

func (rf restoredFleet) event(node string, seq uint64, healthy bool, code string, gpus ...string) record.Record {
	r := event(seq, healthy, code, gpus...)
	r.Event.NodeName, r.Node.UID, r.SeqEpoch = node, "u1", "e-"+node
	r.Event.Metadata = map[string]string{
		record.MetadataBootID: "b1", record.MetadataSeq: fmt.Sprint(seq), record.MetadataSeqEpoch: r.SeqEpoch, record.MetadataSeqRuns: "run",
	}
	return r
}

// handleAll handles every node.
func (rf restoredFleet) handleAll() {
	rf.t.Helper()
	for name := range rf.nodes.nodes {
		err := rf.d.Handle(rf.t.Context(), name)
		if _, _, parked := retry.AsPark(err); err != nil && !parked {
			rf.t.Fatal(err)
		}
	}
}

func (rf restoredFleet) check(node string, status corev1.ConditionStatus) {
	rf.nodes.nodes[node].node.Status.Conditions = []corev1.NodeCondition{{
		Type: "SysLogsXIDError", Status: status, LastTransitionTime: metav1.NewTime(rf.d.Clock.Now()),
	}}
}

// inQuarantine reports whether a node is in quarantine for faults that are unknown to the store.
func (rf restoredFleet) inQuarantine(node string) bool {
	n := rf.nodes.nodes[node].node
	return n.Spec.Unschedulable && n.Annotations[nodemark.UnknownAnnotation] != ""
}

// TestTheRunbook follows docs/tasks/back-up-and-restore.md on real stores: a backup, life, a
// restore, life goes on; then the store of another cluster.
func TestTheRunbook(t *testing.T) {
	for name, v := range vaults(t) {
		t.Run(name, func(t *testing.T) {
			nodes := newRacks("healed", "sick", "stays")
			s := openVault(t, v.dsn)
			f := restoredFleet{t: t, d: newReconciler(t, s, nodes), nodes: nodes, fault: map[string]record.Record{}}
			clock := testkit.NewClock()
			f.d.Clock = clock
			for _, node := range []string{"healed", "stays"} {
				f.fault[node] = f.event(node, 1, false, "79", "GPU-1")
				storetest.MustAppend(t, s, f.fault[node])
				f.check(node, corev1.ConditionTrue)
			}
			f.handleAll()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			backup := v.backup(t, v.dsn)

			s = openVault(t, v.dsn) // twenty minutes of life
			f.d.Store = s
			clock.Step(20 * time.Minute)
			f.fault["sick"] = f.event("sick", 1, false, "79", "GPU-1")
			storetest.MustAppend(t, s, f.fault["sick"], f.event("healed", 2, true, ""))
			f.handleAll()
			f.check("healed", corev1.ConditionFalse)
			f.check("sick", corev1.ConditionTrue)
			if !clean(nodes, "healed") || clean(nodes, "sick") || clean(nodes, "stays") {
				t.Fatal("the nodes are not where the story begins")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			s = openVault(t, backup)
			f.d.Store = s
			patches := nodes.nodes["healed"].patches
			f.handleAll()
			if nodes.nodes["healed"].patches != patches || record.Open(storetest.MustGet(t, s, f.fault["healed"].ID)) {
				t.Error("a node that was released since the backup is touched again, or its fault is open")
			}
			if !f.inQuarantine("sick") || f.inQuarantine("stays") || clean(nodes, "stays") {
				t.Error("after the restore: the node of after the backup is not held, or the other one is not as it was")
			}
			storetest.MustAppend(t, s, f.fault["sick"], f.event("stays", 2, true, ""))
			f.handleAll()
			if f.inQuarantine("sick") || clean(nodes, "sick") || !clean(nodes, "stays") {
				t.Error("life does not go on")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			s = openVault(t, v.empty(t)) // of another cluster, or wiped
			defer s.Close()
			f.d.Store = s
			f.handleAll()
			if !f.inQuarantine("sick") {
				t.Error("an empty store releases a node")
			}
			storetest.MustAppend(t, s, f.event("sick", 3, true, ""))
			f.handleAll()
			if nodemark.HasMarks(nodes.nodes["sick"].node) {
				t.Error("its publisher says that the node has recovered, and it is still held")
			}
		})
	}
}
