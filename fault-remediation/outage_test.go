package faultremediation

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestAPIServerOutage: the API server is killed before the drain's status update, and
// comes back after the service has failed against it; then it is killed again
// while the object is under way. One object, and its outcome is recorded.
func TestAPIServerOutage(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{NodePrefix: "outage"}) // one of its own
	applyCRD(t, cluster)
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "records.db")
	records, err := storeopen.Open(t.Context(), dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = records.Close() })
	w := &world{t: t, cluster: cluster, records: records}
	w.addNode("outage-1")
	w.quarantinedFault("r1", "outage-1")
	service := daemon.RunForTest(t, name, defaultConfig(), build, "--store="+dsn, "--single-host", "--kubeconfig="+cluster.AdminKubeconfig())
	w.waitReady(service.Address)

	cluster.StopAPIServer()
	w.updateStatus(record.NodeDrainer, "r1", drained)
	w.waitMetric(service.Address, `nvsentinel_fault_remediation_keys_handled_total{outcome="error"}`)
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	object := w.waitForObject("outage-1")
	w.waitForRecord("r1", "the uid is stamped", func(s record.Status) bool {
		return s.Remediation != nil && s.Remediation.Attempts[0].UID == string(object.GetUID())
	})

	cluster.StopAPIServer()
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.reboot(object)
	w.waitForRecord("r1", "the reboot is recorded", func(s record.Status) bool { return record.Remediated(s) == "true" })
	w.waitForLabel("outage-1", nodemark.RemediationSucceeded)
	r, err := records.Get(t.Context(), "r1")
	if err != nil || len(r.Status.Remediation.Attempts) != 1 {
		t.Errorf("remediation %+v, %v; want one attempt", r.Status.Remediation, err)
	}
}

// waitMetric waits until a counter is above zero.
func (w *world) waitMetric(address, series string) {
	w.t.Helper()
	w.eventually("the metric "+series, func(ctx context.Context) bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), series)
	})
}
