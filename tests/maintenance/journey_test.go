// Package maintenance takes what a cloud announces the whole way with real processes:
// csp-health-monitor with a bulletin for a cloud, the connectors of the nodes, the
// store, fault-quarantine and node-drainer, to a cordon, a drain and back.
package maintenance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/fleet"
	"github.com/nvidia/nvsentinel/tests/programs"
)

const (
	agent     = "csp-health-monitor"
	namespace = "nvsentinel"
	limit     = 3 * time.Minute // of one step; it takes seconds
)

// publishers lets the monitor publish events about all nodes, as its page states.
const publishers = `
[[publishers.agent]]
name = "csp-health-monitor"
account = "system:serviceaccount:nvsentinel:csp-health-monitor"
clusterWide = true
checks = ["CSPMaintenance", "CSPUnreachable"]
`

// notice is one announcement of the bulletin.
type notice struct {
	ID      string     `json:"id"`
	Machine string     `json:"machine"`
	Code    string     `json:"code"`
	State   string     `json:"state"`
	Begin   *time.Time `json:"begin,omitempty"`
}

// site is a running suite with the monitor.
type site struct {
	fleet    *fleet.Fleet
	bulletin string
	monitor  *fleet.Service
	targets  []string // nodes without the monitor
}

// TestJourney: a maintenance is announced, its node is cordoned and drained before it
// begins, and released behind its end; then the same with a monitor that is killed at
// every point of both ways.
func TestJourney(t *testing.T) {
	testkit.Long(t, "csp-health-monitor's lives as scripts, and internal/reconciler TestKilledAtEveryPoint")
	s := start(t)
	t.Run("announced, begun, ended", func(t *testing.T) { s.checkLifecycle(t, "m1", s.targets[0]) })
	t.Run("the monitor is killed at every point", s.killed)
	t.Run("nobody else was touched", func(t *testing.T) {
		for _, node := range s.targets[1:] {
			s.expect(t, node)
		}
	})
}

func start(t *testing.T) *site {
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	bin, err := fleet.Build(t.Context(), root, t.TempDir(), &progress, "-tags", "crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	monitor := programs.Monitor(root, own, "-tags", "crashpoints")
	if err := (gobuild.Builder{Progress: &progress}).Build(t.Context(), monitor); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	connectors := filepath.Join(own, "connectors.toml")
	write(t, connectors, publishers)
	f, err := fleet.Start(t.Context(), fleet.Options{
		Nodes: 3, Store: "sqlite", Root: root, Bin: bin, Progress: &progress, SettleTime: time.Second, RebootTime: time.Second,
		Runs: func(service, _ string) bool {
			return service == fleet.Connector || service == "fault-quarantine" || service == "node-drainer"
		},
		Publishers: connectors, QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	s := &site{fleet: f, bulletin: filepath.Join(f.Dir, "bulletin.json"), targets: f.NodeNames()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(s.targets[0], 12))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := f.AddWorkloads(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.post(t)
	s.deploy(t, filepath.Join(own, monitor.Programs[0].Name))
	return s
}

// deploy gives the monitor a pod, which the cluster only pretends to run, on the last
// node, and runs it with the pod's account and token.
func (s *site) deploy(t *testing.T, binary string) {
	cluster := s.fleet.Cluster
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), namespace, agent, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	node := s.targets[len(s.targets)-1]
	s.targets = s.targets[:len(s.targets)-1]
	client := cluster.Client().CoreV1()
	pod, err := client.Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: agent, Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: agent, Containers: []corev1.Container{{Name: agent, Image: "none"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := client.ServiceAccounts(namespace).CreateToken(t.Context(), agent, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{"platform-connector.nvsentinel.nvidia.com"}, ExpirationSeconds: new(int64(3600)),
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.fleet.Dir, agent+".token")
	write(t, file, token.Status.Token)
	s.monitor = s.fleet.Launch(agent, binary, []string{
		"--cluster-name=test", "--bulletin=" + s.bulletin, "--store=" + s.fleet.DSN, "--single-host", "--kubeconfig=" + kubeconfig,
		"--platform-connector-socket=unix://" + s.fleet.Socket(node), "--platform-connector-token-path=" + file, "--node-name=" + node,
		"--processingStrategy=PROCESS", "--metrics-address=127.0.0.1:0", "--maintenance-event-poll-interval-seconds=10",
		"--polling-interval-seconds=30", "--post-maintenance-healthy-delay-minutes=0",
	}, nil)
}

// post replaces the bulletin.
func (s *site) post(t *testing.T, notices ...notice) {
	t.Helper()
	text, err := json.Marshal(slices.Concat([]notice{}, notices))
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.bulletin+".new", string(text))
	if err := os.Rename(s.bulletin+".new", s.bulletin); err != nil {
		t.Fatal(err)
	}
}

// machine is what the bulletin calls a node's machine.
func (s *site) machine(t *testing.T, node string) string {
	t.Helper()
	object, err := s.fleet.Node(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	id := object.Spec.ProviderID
	return id[strings.LastIndex(id, "/")+1:]
}

func (s *site) checkLifecycle(t *testing.T, id, node string) {
	n := notice{ID: id, Machine: s.machine(t, node), Code: "REBOOT", State: "Scheduled", Begin: new(time.Now().Add(10 * time.Minute))}
	reported := s.events(t, node)
	s.post(t, n)
	s.monitor.Restart() // it reads at its start
	s.expect(t, node, append(reported, "fault "+id)...)
	n.State = "Completed"
	s.post(t, n)
	s.monitor.Restart()
	s.expect(t, node, append(reported, "fault "+id, "recovery "+id)...)
}

// points are where the monitor can be killed, in the order in which the monitor reads, decides
// and reports.
var points = []string{"read", "saved", "decided", "written", "published", "acknowledged", "stamped", "removed"}

func (s *site) killed(t *testing.T) {
	once := t.TempDir()
	var crash []string
	for _, p := range points {
		crash = append(crash, agent+"/"+p)
	}
	s.monitor.SetEnv([]string{"NVSENTINEL_CRASH=" + strings.Join(crash, ","), "NVSENTINEL_CRASH_ONCE=" + once})
	s.checkLifecycle(t, "m2", s.targets[0])
	died, err := filepath.Glob(filepath.Join(once, "*"))
	if err != nil || len(died) != len(points) {
		t.Errorf("it died at %d of %d points: %s, %v", len(died), len(points), died, err)
	}
}

// expect waits until the store has these events about a node and no others, and the
// node is cordoned and drained if the last of them is a fault, and neither if it is
// none.
func (s *site) expect(t *testing.T, node string, events ...string) {
	t.Helper()
	faulty := len(events) > 0 && strings.HasPrefix(events[len(events)-1], "fault")
	await(t, fmt.Sprintf("%q on %s", events, node), func() (bool, string) {
		reported := s.events(t, node)
		if len(reported) > len(events) {
			t.Fatalf("%q on %s, want %q", reported, node, events)
		}
		object, err := s.fleet.Node(t.Context(), node)
		if err != nil {
			return false, err.Error()
		}
		drained := s.drained(t, node)
		ok := slices.Equal(reported, events) && object.Spec.Unschedulable == faulty && (!faulty || drained)
		return ok, fmt.Sprintf("events %q, cordoned %v, drained %v", reported, object.Spec.Unschedulable, drained)
	})
}

// events are the stored events of maintenances of a node, in append order.
func (s *site) events(t *testing.T, node string) (reported []string) {
	t.Helper()
	for _, r := range s.records(t, node) {
		kind := "fault"
		if r.Event.IsHealthy {
			kind = "recovery"
		}
		reported = append(reported, kind+" "+r.Event.Metadata["maintenanceEventId"])
	}
	return reported
}

// drained reports whether the newest fault's node was drained.
func (s *site) drained(t *testing.T, node string) bool {
	t.Helper()
	all := s.records(t, node)
	if len(all) == 0 {
		return false
	}
	done := all[len(all)-1].Status.UserPodsEvictionStatus.Status
	return done == record.EvictionSucceeded || done == record.AlreadyDrained
}

func (s *site) records(t *testing.T, node string) []record.Record {
	t.Helper()
	all, err := s.fleet.Records(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r record.Record) bool { return r.Event.Agent != agent })
}

// await polls a condition until it holds.
func await(t *testing.T, what string, cond func() (ok bool, detail string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, detail := cond()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %s", limit, what, cmp.Or(detail, "nothing to tell"))
		case <-tick.C:
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
