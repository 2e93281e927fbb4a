package command_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// requestedCanary is the canary that the Node asks for.
func (w *world) requestedCanary(t *testing.T) string {
	t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), w.node.Name, metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return ""
	}
	return node.Annotations[nodemark.CanaryAnnotation]
}

// TestCanary: the time of an event that arrived is printed, an event that did not arrive
// is no success, and nothing of the request is left on the Node.
func TestCanary(t *testing.T) {
	w := newWorld(t)
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nvsentinel-canary-keeper}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list, patch]}]
`)
	keeper := w.account(t, "keeper", "nvsentinel-canary-keeper")
	done := make(chan struct{})
	go func() {
		defer close(done)
		var id string
		testkit.Until(t, 2*time.Minute, func() bool { id = w.requestedCanary(t); return id != "" })
		at := time.Now().UTC()
		r := record.Record{ID: id, CreatedAt: at, Event: record.Event{
			ID: id, Agent: "nvsentinel-canary", CheckName: "NVSentinelCanary", NodeName: w.node.Name, IsHealthy: true,
			ProcessingStrategy: record.PersistOnly, GeneratedTimestamp: at.Add(-7 * time.Millisecond),
		}}
		if _, err := w.records.Append(t.Context(), []record.Record{r}); err != nil {
			t.Error(err)
		}
	}()
	p := command.Program{Store: w.dsn}
	got := run(t, p, "canary", w.node.Name, "--kubeconfig", keeper, "--wait", "2m")
	<-done
	got.expect(t, command.ExitComplete, "7 ms from the connector, through its socket", "")
	if id := w.requestedCanary(t); id != "" {
		t.Errorf("%s is still asked for", id)
	}
	run(t, p, "canary", w.node.Name, "--kubeconfig", keeper, "--wait", "1s").expect(t, command.ExitFailed, "", "is not in the store: check the log of the connector")
	if id := w.requestedCanary(t); id != "" {
		t.Errorf("%s is still asked for", id)
	}
	run(t, p, "canary", w.node.Name, "--kubeconfig", w.viewer).expect(t, command.ExitFailed, "", "forbidden")
	run(t, p, "canary", "no-such-node", "--kubeconfig", keeper).expect(t, command.ExitFailed, "", "not found")
}
