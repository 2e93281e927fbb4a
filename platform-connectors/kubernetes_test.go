package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	check       = "SysLogsXIDError"
	healthyText = "No Health Failures"
)

// site is a place with a Node in a real API server.
type site struct {
	*place
	cluster *localcluster.Cluster
	node    *corev1.Node
	// tend is called while a condition is waited for; nil does nothing.
	tend func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	node, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: nodeName})
	if err != nil {
		t.Fatal(err)
	}
	// Events about the node of an earlier test do not belong to this one.
	err = cluster.Client().CoreV1().Events("default").DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + nodeName})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.DeleteNode(context.WithoutCancel(t.Context()), nodeName); err != nil {
			t.Error(err)
		}
	})
	return &site{place: newPlace(t, "--kubeconfig="+cluster.AdminKubeconfig()), cluster: cluster, node: node}
}

func healthy(publisher string, seq int) *protos.HealthEvent {
	e := event(publisher, seq)
	e.IsHealthy, e.IsFatal, e.Message, e.RecommendedAction = true, false, "", protos.RecommendedAction_NONE
	return e
}

func (s *site) send(events ...*protos.HealthEvent) {
	s.t.Helper()
	if err := send(s.t.Context(), s.client(), events...); err != nil {
		s.t.Fatal(err)
	}
}

// conditions are the Node's, by type: "status reason: message".
func (s *site) conditions() map[string]string {
	s.t.Helper()
	return s.conditionsOf(nodeName)
}

func (s *site) conditionsOf(name string) map[string]string {
	s.t.Helper()
	node, err := s.cluster.Client().CoreV1().Nodes().Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range node.Status.Conditions {
		out[string(c.Type)] = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	return out
}

func (s *site) awaitCondition(name, want string) {
	s.t.Helper()
	s.awaitConditionOf(nodeName, name, want)
}

func (s *site) awaitConditionOf(node, name, want string) {
	s.t.Helper()
	await(s.t, func() (bool, string) {
		if s.tend != nil {
			s.tend()
		}
		got := s.conditionsOf(node)
		return got[name] == want, fmt.Sprintf("condition %s is not %q in %v", name, want, got)
	})
}

func faulty(messages string) string { return "True SysLogsXIDErrorIsNotHealthy: " + messages }

func entry(publisher string, seq int) string {
	return fmt.Sprintf("ErrorCode:79 GPU_UUID:GPU-%s %s/%d Recommended Action=RESTART_BM;", publisher, publisher, seq)
}

const cleared = "False SysLogsXIDErrorIsHealthy: " + healthyText

func TestConditionsFollowTheFaults(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	before := s.conditions()
	s.start()
	s.send(event("a", 1), event("b", 1))
	s.awaitCondition(check, faulty(entry("a", 1)+entry("b", 1)))
	s.send(healthy("a", 2))
	s.awaitCondition(check, faulty(entry("b", 1)))
	s.send(healthy("b", 2))
	s.awaitCondition(check, cleared)

	after := s.conditions()
	delete(after, check)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("foreign conditions (-before +after):\n%s", diff)
	}
	all := awaitStored(t, s.records(), 4)
	want := record.NodeIdentity{
		UID: string(s.node.UID), ProviderID: s.node.Spec.ProviderID,
		SystemUUID: s.node.Status.NodeInfo.SystemUUID, BootID: s.node.Status.NodeInfo.BootID,
	}
	if diff := cmp.Diff(want, all[3].Node); diff != "" {
		t.Errorf("the record's machine (-want +got):\n%s", diff)
	}
}

func TestConditionsAreRestoredAfterManualChange(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	s.start()
	s.send(event("a", 1))
	s.awaitCondition(check, faulty(entry("a", 1)))
	for _, foreign := range []map[string]any{
		{"type": check, "status": "False", "reason": "Wishful", "message": "all is well"},
		{"type": check, "$patch": "delete"},
	} {
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{foreign}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.cluster.Client().CoreV1().Nodes().Patch(
			t.Context(), nodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		s.awaitCondition(check, faulty(entry("a", 1)))
	}
}

func TestPersistOnlyChangesNothingInKubernetes(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	s.start()
	fatal, minor := event("a", 1), event("a", 2)
	minor.IsFatal = false
	for _, e := range []*protos.HealthEvent{fatal, minor} {
		e.ProcessingStrategy = protos.ProcessingStrategy_PERSIST_ONLY
		e.CheckName = "PersistOnlyCheck"
	}
	last := event("b", 1) // what comes after shows that the others were passed
	s.send(fatal, minor, last)
	s.awaitCondition(check, faulty(entry("b", 1)))
	if got, ok := s.conditions()["PersistOnlyCheck"]; ok {
		t.Errorf("condition %q", got)
	}
	s.send(notFatal("b", 2))
	s.awaitEvent("SysLogsXIDErrorIsNotHealthy", 1)
	if n := len(s.events("PersistOnlyCheckIsNotHealthy")); n != 0 {
		t.Errorf("%d Kubernetes Events", n)
	}
	for _, r := range awaitStored(t, s.records(), 4)[:2] {
		if r.ExpireAt == nil || r.Event.ProcessingStrategy != record.PersistOnly {
			t.Errorf("record %s: %s, expires %v", r.ID, r.Event.ProcessingStrategy, r.ExpireAt)
		}
	}
}

func notFatal(publisher string, seq int) *protos.HealthEvent {
	e := event(publisher, seq)
	e.IsFatal, e.Message = false, "corrected"
	return e
}

// events are the Kubernetes Events about the node with a reason.
func (s *site) events(reason string) []corev1.Event {
	s.t.Helper()
	list, err := s.cluster.Client().CoreV1().Events("default").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []corev1.Event
	for _, e := range list.Items {
		if e.Reason == reason && e.InvolvedObject.Name == nodeName && e.Source.Component == agent {
			out = append(out, e)
		}
	}
	return out
}

// awaitEvent waits for one Event with the count.
func (s *site) awaitEvent(reason string, count int32) {
	s.t.Helper()
	await(s.t, func() (bool, string) {
		got := s.events(reason)
		return len(got) == 1 && got[0].Count == count && got[0].Type == corev1.EventTypeWarning, fmt.Sprintf("events: %v", got)
	})
}

func TestAnAbsentAPIServerHoldsNothing(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	connector := s.start()
	s.send(healthy("a", 1))
	s.awaitCondition(check, cleared)
	s.cluster.StopAPIServer()
	s.send(event("a", 2), event("b", 1))
	awaitStored(t, s.records(), 3)
	await(t, func() (bool, string) {
		b, err := os.ReadFile(filepath.Join(s.dir, "spool", "released"))
		return err == nil && strings.TrimLeft(strings.TrimSpace(string(b)), "0") == "3", fmt.Sprintf("released %q, %v", b, err)
	})
	connector.kill()
	s.start()
	s.send(healthy("b", 2))
	awaitStored(t, s.records(), 4)
	if err := s.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitCondition(check, faulty(entry("a", 2)))
}

func TestLostFaultSetIsRebuiltFromTheStore(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	connector := s.start()
	s.send(event("a", 1), event("b", 1), healthy("b", 2))
	s.awaitCondition(check, faulty(entry("a", 1)))
	awaitStored(t, s.records(), 3)
	connector.kill()

	// With the store away too, what stands stays as it is, and new faults show.
	faults := filepath.Join(s.dir, "spool", "faults.json")
	if err := os.Remove(faults); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(s.dir, "db")
	if err := os.Rename(db, db+".away"); err != nil {
		t.Fatal(err)
	}
	connector = s.start()
	other := event("c", 1)
	other.Agent, other.CheckName = "gpu-health-monitor", "GpuMemWatch"
	s.send(healthy("a", 2), other)
	s.awaitCondition("GpuMemWatch", "True GpuMemWatchIsNotHealthy: "+entry("c", 1))
	if got, want := s.conditions()[check], faulty(entry("a", 1)); got != want {
		t.Errorf("while the set is incomplete the condition became %q", got)
	}
	// Once the store is there, its history and the spool make the set whole.
	if err := os.Rename(db+".away", db); err != nil {
		t.Fatal(err)
	}
	s.awaitCondition(check, cleared)
	connector.kill()

	// And the rebuilt set is followed.
	if err := os.Remove(faults); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.send(event("a", 3))
	s.awaitCondition(check, faulty(entry("a", 3)))
	s.awaitCondition("GpuMemWatch", "True GpuMemWatchIsNotHealthy: "+entry("c", 1))
	awaitStored(t, s.records(), 6) // the condition does not wait for the store
	open, err := s.records().List(t.Context(), store.Query{Selector: record.Selector{Agent: agent}})
	if err != nil || len(open) != 5 {
		t.Errorf("%d records of the agent, %v", len(open), err)
	}
}
