package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// TestConditionsOfClusterWideFaultsAreWrittenByTheLeader: a publisher on one
// node reports faults of others through its node's connector, and a connector
// of role cluster shows them; when the leader dies another one goes on.
func TestConditionsOfClusterWideFaultsAreWrittenByTheLeader(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	namespace := s.cluster.Namespace(t)
	file := filepath.Join(s.dir, "connector.toml")
	text := fmt.Sprintf("[[publishers.agent]]\nname = \"wide\"\naccount = \"system:serviceaccount:%s:wide\"\nclusterWide = true\n", namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	control := &place{t: t, dir: s.dir, args: []string{
		"--role=cluster", "--config=" + file, "--store=" + s.dsn(), "--single-host", "--metrics-address=off", "--log-format=text",
		"--kubeconfig=" + s.cluster.AdminKubeconfig(), "--leader-elect", "--leader-elect-namespace=" + namespace,
		"--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=1s",
	}}
	leader := control.run(self(t), control.args...)
	// A leader that the load kept from renewing its lease ends, and is started
	// again as a Deployment does.
	s.tend = func() {
		select {
		case <-leader.done:
			if !strings.Contains(leader.log.String(), "the lease was lost") {
				t.Fatal("the leader ended by itself")
			}
			leader = control.run(self(t), control.args...)
		default:
		}
	}
	s.args = append(s.args, "--config="+file)
	s.wide(namespace)
	s.start()
	wide := s.publisher(s.token(namespace, "wide", nodeName, authn.Audience))
	report := func(node string, e *protos.HealthEvent) {
		t.Helper()
		e.Agent, e.CheckName, e.NodeName = "wide", "WideCheck", node
		s.accepted(wide, e)
	}
	sick := "True WideCheckIsNotHealthy: "
	well := "False WideCheckIsHealthy: " + healthyText

	// Of this node, of one that comes later, and beside a fault of the node's own.
	s.send(event("own", 1))
	report(nodeName, event("a", 1))
	report("gpu-later", event("b", 1))
	s.awaitCondition("WideCheck", sick+entry("a", 1))
	s.awaitCondition(check, faulty(entry("own", 1)))
	if _, err := s.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: "gpu-later"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cluster.DeleteNode(context.WithoutCancel(t.Context()), "gpu-later") })
	s.awaitConditionOf("gpu-later", "WideCheck", sick+entry("b", 1))

	// A foreign hand is put right, and the next leader knows all of it.
	leader.kill()
	leader = control.run(self(t), control.args...)
	wipe, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "WideCheck", "status": "False", "reason": "Wishful", "message": "all is well"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.cluster.Client().CoreV1().Nodes().Patch(t.Context(), nodeName, types.StrategicMergePatchType, wipe, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	s.awaitCondition("WideCheck", sick+entry("a", 1))
	report(nodeName, healthy("a", 2))
	s.awaitCondition("WideCheck", well)
	s.awaitCondition(check, faulty(entry("own", 1)))
	s.awaitConditionOf("gpu-later", "WideCheck", sick+entry("b", 1))

	// What a person clears is over for every room: of an agent of the whole
	// cluster, and of one of the node's own.
	s.clears("gpu-later", event("b", 1).GetId())
	s.awaitConditionOf("gpu-later", "WideCheck", well)
	s.clears(nodeName, event("own", 1).GetId())
	s.awaitCondition(check, cleared)
	s.clears(nodeName, event("own", 2).GetId()) // nobody knows it

	// Nobody else may speak as it.
	s.refused(s.publisher(""), wideAsOwn(), codes.PermissionDenied, `agent "wide" belongs to`)
}

// clears asks for the clearing of a record as nvsentinel clear does, and waits for
// the recovery in the store.
func (s *site) clears(node, id string) {
	s.t.Helper()
	key, value := nodemark.Clearing{Record: id, By: "alice", Reason: "GPU replaced"}.Annotation()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if _, err := s.cluster.Client().CoreV1().Nodes().Patch(s.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
	records := s.records()
	if _, err := records.Get(s.t.Context(), id); errors.Is(err, store.ErrNotFound) {
		return
	}
	var recovery record.Record
	testkit.Until(s.t, 2*time.Minute, func() (ok bool) {
		s.tend()
		var err error
		recovery, err = records.Get(s.t.Context(), fault.ClearingID(id))
		return err == nil
	})
	e := recovery.Event
	if !e.IsHealthy || e.NodeName != node || e.Message != "cleared by alice: GPU replaced" || e.Metadata[fault.MetadataClears] != id {
		s.t.Errorf("recovery %+v", e)
	}
}

func wideAsOwn() *protos.HealthEvent {
	e := event("c", 1)
	e.Agent, e.CheckName = "wide", "WideCheck"
	return e
}
