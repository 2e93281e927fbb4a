package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestARecordThatKillsTheClusterConnector: the process dies whenever it looks at the
// records of one node. The conditions of the other one are written, one thing at a
// time.
func TestARecordThatKillsTheClusterConnector(t *testing.T) {
	testkit.Long(t, "internal/consume TestPoisonRecordIsDeadLettered, TestOtherCrashesAreNotAttributed live the same lives")
	binary, err := testkit.Binary(t.TempDir(), ".")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.makeStoreReachable()
	if _, err := s.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: "gpu-fatal"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cluster.DeleteNode(context.WithoutCancel(t.Context()), "gpu-fatal") })
	file := filepath.Join(s.dir, "connector.toml")
	if err := os.WriteFile(file, []byte("[[publishers.agent]]\nname = \"wide\"\naccount = \"system:serviceaccount:a:wide\"\nclusterWide = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	records := s.records()
	for i, node := range []string{"gpu-fatal", nodeName} {
		e := event("a", i+1)
		e.Agent, e.CheckName, e.NodeName = "wide", "WideCheck", node
		if i == 0 {
			e.Message = "fatal to platform-connectors-cluster"
		}
		r := record.Record{ID: e.GetId(), CreatedAt: e.GetGeneratedTimestamp().AsTime(), Event: record.FromProto(e)}
		if _, err := records.Append(t.Context(), []record.Record{r}); err != nil {
			t.Fatal(err)
		}
	}
	control := &place{t: t, dir: s.dir, env: []string{"NVSENTINEL_FATAL_TEXT=fatal to platform-connectors-cluster"}, args: []string{
		"--role=cluster", "--config=" + file, "--store=" + s.dsn(), "--single-host", "--metrics-address=off", "--log-format=text",
		"--kubeconfig=" + s.cluster.AdminKubeconfig(),
	}}
	deaths := testkit.RunUntilDone(t, 5, func() <-chan struct{} { return control.run(binary, control.args...).done }, func() bool {
		return strings.HasPrefix(s.conditionsOf(nodeName)["WideCheck"], "True")
	})
	letters, err := records.DeadLetters(t.Context(), "lives of consumers")
	if err != nil || len(letters) == 0 {
		t.Errorf("after %d deaths the store remembers %d lives, %v", deaths, len(letters), err)
	}
	if got, ok := s.conditionsOf("gpu-fatal")["WideCheck"]; ok {
		t.Errorf("the fatal record's node has the condition %q", got)
	}
}
