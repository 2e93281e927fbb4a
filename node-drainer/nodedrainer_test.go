package nodedrainer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

func TestTheServiceGetsReadyAndStops(t *testing.T) {
	kubeconfig := localcluster.ForTest(t, localcluster.Options{}).AdminKubeconfig()
	for _, args := range [][]string{nil, {"--leader-elect", "--leader-elect-namespace", "default"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			service := daemon.RunForTest(t, name, defaultConfig(), build, append(args,
				"--kubeconfig", kubeconfig, "--single-host", "--store", "sqlite://"+filepath.Join(t.TempDir(), "r.db"))...)
			await(t, "http://"+service.Address+"/readyz", "drains")
			await(t, "http://"+service.Address+"/metrics", "nvsentinel_node_drainer_active_drains 0")
			if code := service.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// await polls url until it answers 200 with want in it, at most two minutes.
func await(t *testing.T, url, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var last string
	for {
		code, body, err := get(ctx, url)
		if err == nil && code == http.StatusOK && strings.Contains(body, want) {
			return
		}
		if ctx.Err() == nil {
			last = fmt.Sprintf("%d %s %v", code, body, err)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %s, want %q", url, last, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// ahead is a clock that runs a day ahead.
type ahead struct{ clock.RealClock }

func (a ahead) Now() time.Time { return a.RealClock.Now().Add(24 * time.Hour) }

// TestClockSkewEndsNoDrain: a pod on its way out has its grace period and the
// policy's time after it by the API server's clock, not by this machine's.
func TestClockSkewEndsNoDrain(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	ctx, ns, node := t.Context(), cluster.Namespace(t), "wrong-clock"
	_, err := cluster.AddNode(ctx, localcluster.NodeSpec{Name: node, Annotations: map[string]string{
		nodemark.SessionAnnotation: "r1", nodemark.QuarantineHealthEventIsCordoned: nodemark.True,
	}})
	if err != nil {
		t.Fatal(err)
	}
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := cluster.Client().CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, cordon, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AddPod(ctx, localcluster.PodSpec{Namespace: ns, Name: "train", Node: node}); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().CoreV1().Pods(ns).Delete(ctx, "train", metav1.DeleteOptions{}); err != nil { // no kubelet ends it
		t.Fatal(err)
	}
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "r.db")
	db, err := storeopen.Open(ctx, dsn, storeopen.Options{SingleHost: true, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	fault := record.Record{ID: "r1", CreatedAt: time.Now(), Event: record.Event{ID: "r1", NodeName: node, IsFatal: true, ProcessingStrategy: record.Process}}
	if _, err := db.Append(ctx, []record.Record{fault}); err != nil {
		t.Fatal(err)
	}
	fault, err = db.Get(ctx, "r1")
	if err != nil {
		t.Fatal(err)
	}
	fault.Status.NodeQuarantined, fault.Status.Session, fault.Status.Faults = record.Quarantined, "r1", []record.Fault{{Key: "k"}}
	fault.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}, At: time.Now()}
	if _, err := db.Update(ctx, record.FaultQuarantine, []store.Change{{ID: "r1", Revision: fault.Revision, Status: fault.Status}}); err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(t.TempDir(), "drainer.toml")
	if err := os.WriteFile(rules, []byte("[[userNamespaces]]\nname = \"*\"\nmode = \"Immediate\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	service := daemon.RunForTest(t, name, defaultConfig(), func(ctx context.Context, d *daemon.Daemon, c Config) error {
		d.Clock = ahead{}
		return build(ctx, d, c)
	}, "--kubeconfig", cluster.AdminKubeconfig(), "--single-host", "--store", dsn, "--config", rules)
	testkit.Until(t, 2*time.Minute, func() bool { // it waits for the pod, or is over
		r, err := db.Get(ctx, "r1")
		if err != nil {
			return false
		}
		if s := r.Status.UserPodsEvictionStatus; s.Status == record.EvictionSucceeded {
			t.Fatalf("the drain is over at %v with a terminating pod left: %s", r.Status.DrainFinishTimestamp, s.Message)
		}
		return strings.Contains(r.Status.UserPodsEvictionStatus.Message, "terminating")
	})
	if code := service.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
