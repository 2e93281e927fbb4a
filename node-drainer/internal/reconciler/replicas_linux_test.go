package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestTheLeaderIsKilledInMidDecision: the other replica finishes what it began.
func TestTheLeaderIsKilledInMidDecision(t *testing.T) {
	testkit.Long(t, "internal/lease covers the election, the chaos test runs replicas")
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "a"})
	leader := s.replicas("NVSENTINEL_CRASH=node-drainer/decided:2", "12s", "10s")
	s.fault("r1", "r1")
	s.mark("r1")
	if err := leader.wait(t); err == nil {
		t.Fatal("the leader was to be killed")
	}
	s.wantEviction("r1", record.EvictionSucceeded)
	s.wantLabel(nodemark.DrainSucceeded)
}

// TestTheLeaderIsFrozenInMidDecision with an eviction decided on. Meanwhile the
// node recovers, which the other replica sees to. The thawed one must not carry
// its old decision out.
func TestTheLeaderIsFrozenInMidDecision(t *testing.T) {
	testkit.Long(t, "internal/lease covers the election, the chaos test runs replicas")
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "a"})
	leader := s.replicas("NVSENTINEL_FREEZE=node-drainer/decided:2", "20s", "17s")
	s.fault("r1", "r1")
	s.mark("r1")
	s.eventually(leader.frozen)
	s.clear("r1")
	s.release()
	s.wantEviction("r1", record.EvictionCanceled)
	if err := leader.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := leader.wait(t); err == nil {
		t.Error("the replica that lost its lease did not fail")
	}
	if _, going := s.leaving(s.ns, "a"); going {
		t.Errorf("the thawed replica took a pod of a recovered node away:\n%s", leader.log.String())
	}
	s.wantLabel("")
}

// replica is one drainer process.
type replica struct {
	cmd *exec.Cmd
	log *strings.Builder
}

// replicas starts two drainers instead of the stage's own; the first leads, and
// gets env. The second's lease outlives a stalled machine: nobody starts it
// again; the first's, and the time that it may go without renewal, are the test's.
func (s *stage) replicas(env, lease, renew string) (leader *replica) {
	s.t.Helper()
	s.shareable()
	binary := drainer(s.t)
	ns := s.cluster.Namespace(s.t)
	leader = s.replica(binary, ns, lease, renew, env)
	s.eventually(func() error {
		leases, err := s.cluster.Client().CoordinationV1().Leases(ns).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, l := range leases.Items {
			if h := l.Spec.HolderIdentity; h != nil && *h != "" {
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	s.replica(binary, ns, "60s", "50s")
	return leader
}

// shareable stops the stage's own drainer and moves the records to PostgreSQL: a
// frozen process may hold the lock of an SQLite file, and with it everybody.
func (s *stage) shareable() {
	s.t.Helper()
	s.stop()
	s.stop = func() {}
	server := pgtest.Own(s.t, pgtest.Options{})
	var err error
	if s.dsn, err = server.CreateDatabase(s.t.Context(), "drains"); err != nil {
		s.t.Fatal(err)
	}
	db, err := storeopen.Open(s.t.Context(), s.dsn, storeopen.Options{Registerer: prometheus.NewRegistry()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.records = &counted{Store: db}
}

// replica starts a drainer that lives as long as the test at most.
func (s *stage) replica(binary, ns, lease, renew string, env ...string) *replica {
	s.t.Helper()
	r := &replica{log: &strings.Builder{}}
	r.cmd = exec.CommandContext(context.Background(), binary, append(s.arguments(), "--leader-elect", "--leader-elect-namespace", ns,
		"--leader-elect-lease-duration", lease, "--leader-elect-renew-deadline", renew, "--leader-elect-retry-period", "1s")...)
	r.cmd.Env, r.cmd.Stderr = append(os.Environ(), env...), r.log
	if err := r.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	})
	return r
}

// wait is how the process ends, within two minutes.
func (r *replica) wait(t *testing.T) error {
	t.Helper()
	late := time.AfterFunc(2*time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	return r.cmd.Wait()
}

// frozen returns an error unless the kernel has stopped the process.
func (r *replica) frozen() error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(status), ") ")
	if !strings.HasPrefix(after, "T") {
		return fmt.Errorf("the process is not stopped: %s", after)
	}
	return nil
}
