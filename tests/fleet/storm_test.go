package fleet

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

const nodeHealthCheck = "node-health-check"

var nodeHealthChecks = schema.GroupVersionResource{Group: "remediation.medik8s.io", Version: "v1alpha1", Resource: "nodehealthchecks"}

// stormCheck lets eight of twenty nodes be away, and begins nothing in a storm until
// no more than four are.
const stormCheck = `
apiVersion: janitor.dgxc.nvidia.com/v1alpha1
kind: RebootNodeTemplate
metadata: {name: reboot}
spec:
  template:
    spec: {}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: storm}
spec:
  selector: {matchLabels: {nvidia.com/gpu.present: "true"}}
  minHealthy: 12
  stormRecoveryThreshold: 4
  unhealthyConditions:
    - {type: Ready, status: "False", duration: 0s}
    - {type: Ready, status: Unknown, duration: 0s}
  remediationTemplate: {apiVersion: janitor.dgxc.nvidia.com/v1alpha1, kind: RebootNodeTemplate, name: reboot}
`

// TestStorm: with the janitor and the plugin as processes, nine of twenty kubelets go
// silent. Five have their remediations when four more follow, which together are a
// storm: nothing begins for the four until the janitor has brought the five back.
// Each of the nine is rebooted once.
func TestStorm(t *testing.T) {
	testkit.Long(t, "triage's script storm.txt tells the same storm, and internal/reconciler and janitor have tests of their own on a real API server")
	s := startStorm(t)
	first, second := s.fleet.NodeNames()[:5], s.fleet.NodeNames()[5:9]
	janitor := s.fleet.Service("janitor")
	janitor.Freeze(true)
	s.silence(first)
	s.until("20 observed, 15 healthy, 5 remediated, storm false")
	// The check sees the four at once: it is away while they fall.
	err := s.fleet.Service(nodeHealthCheck).Swap(func() error {
		s.silence(second)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.until("20 observed, 11 healthy, 5 remediated, storm true")
	janitor.Freeze(false)
	s.until("20 observed, 20 healthy, 0 remediated, storm false")
	s.pictured("20 observed, 11 healthy, 5 remediated, storm true", "20 observed, 16 healthy, 4 remediated, storm false")
	s.rebootedOnce(slices.Concat(first, second))
}

// storm is the janitor's half of the suite beside node-health-check, with a recorder of the
// status of a NodeHealthCheck.
type storm struct {
	*testing.T
	fleet *Fleet
	lines chan string
	seen  []string
}

func startStorm(t *testing.T) *storm {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: 20, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, RebootTime: time.Second,
		Runs: func(service, _ string) bool { return service == "janitor" || service == "csp-plugin-kwok" },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &storm{T: t, fleet: f, lines: make(chan string, 1000)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(s.seen, "\n"), f.Logs("", 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	startNodeHealthCheck(t, f, stormCheck, nil)
	s.watch()
	return s
}

// startNodeHealthCheck applies the kinds and a check, and runs the process under its
// own account.
func startNodeHealthCheck(t *testing.T, f *Fleet, check string, env []string, flags ...string) {
	t.Helper()
	chart := filepath.Join(f.options.Root, "distros/helm/nvsentinel/manifests/crds")
	for _, crd := range []string{
		"remediation.medik8s.io_nodehealthchecks.yaml", "nvsentinel.dgxc.nvidia.com_healtheventremediations.yaml",
		"nvsentinel.dgxc.nvidia.com_healtheventremediationtemplates.yaml",
	} {
		if err := f.applyFile(t.Context(), filepath.Join(chart, crd)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Cluster.Apply(t.Context(), strings.NewReader(check)); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := f.Cluster.ServiceAccountKubeconfig(t.Context(), "nvsentinel", nodeHealthCheck, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--kubeconfig", kubeconfig, "--dry-run=false", "--metrics-address", "127.0.0.1:0"}, flags...)
	f.Launch(nodeHealthCheck, nodeHealthCheck, args, env)
}

// watch writes down each status that differs from the one before.
func (s *storm) watch() {
	watch, err := s.fleet.Cluster.Dynamic().Resource(nodeHealthChecks).Watch(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(watch.Stop)
	go func() {
		defer close(s.lines)
		before := ""
		for event := range watch.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return
			}
			if line := counts(object); line != before {
				before = line
				s.lines <- line
			}
		}
	}()
}

// counts returns the status of a NodeHealthCheck as one line.
func counts(check *unstructured.Unstructured) string {
	observed, _, _ := unstructured.NestedInt64(check.Object, "status", "observedNodes")
	healthy, _, _ := unstructured.NestedInt64(check.Object, "status", "healthyNodes")
	storm, _, _ := unstructured.NestedBool(check.Object, "status", "stormRecoveryActive")
	nodes, _, _ := unstructured.NestedSlice(check.Object, "status", "unhealthyNodes")
	remediated := 0
	for _, n := range nodes {
		if node, ok := n.(map[string]any); ok && node["remediations"] != nil {
			remediated++
		}
	}
	return fmt.Sprintf("%d observed, %d healthy, %d remediated, storm %t", observed, healthy, remediated, storm)
}

// until waits until the check's status has this line.
func (s *storm) until(line string) {
	s.Helper()
	limit := time.After(5 * time.Minute)
	for {
		select {
		case seen, more := <-s.lines:
			if !more {
				s.Fatalf("the watch ended before %q", line)
			}
			s.seen = append(s.seen, seen)
			if seen == line {
				return
			}
		case <-limit:
			s.Fatalf("the status never was %q", line)
		}
	}
}

// silence stops the heartbeats of kubelets and waits until Kubernetes shows it.
func (s *storm) silence(nodes []string) {
	s.Helper()
	for _, node := range nodes {
		if err := s.fleet.Cluster.SetPower(s.Context(), node, false); err != nil {
			s.Fatal(err)
		}
	}
	for _, name := range nodes {
		testkit.Until(s, 3*time.Minute, func() bool {
			node, err := s.fleet.Node(s.Context(), name)
			return err == nil && !kube.NodeReady(node)
		})
	}
}

// pictured shows the counts over time, in which storm follows on the one status and
// ends with the other, and nothing began in between.
func (s *storm) pictured(storm, over string) {
	s.Helper()
	picture := strings.Join(s.seen, "\n")
	s.Logf("counts over time:\n%s", picture)
	began := slices.Index(s.seen, storm)
	ended := slices.IndexFunc(s.seen, func(line string) bool {
		return strings.HasSuffix(line, "storm false") && strings.Contains(line, "16 healthy")
	})
	if began < 0 || ended < began {
		s.Fatalf("want %q, then %q", storm, over)
	}
	for _, line := range s.seen[began:ended] {
		var observed, healthy, remediated int
		if _, err := fmt.Sscanf(line, "%d observed, %d healthy, %d remediated", &observed, &healthy, &remediated); err != nil {
			s.Fatal(err)
		}
		if observed != 20 || healthy+remediated > 16 || !strings.HasSuffix(line, "storm true") {
			s.Errorf("in the storm: %s", line)
		}
	}
}

// rebootedOnce: these nodes and no others, each once.
func (s *storm) rebootedOnce(nodes []string) {
	s.Helper()
	for _, node := range s.fleet.NodeNames() {
		want := 0
		if slices.Contains(nodes, node) {
			want = 1
		}
		if n, err := s.fleet.Reboots(node); n != want || err != nil {
			s.Errorf("%d reboots of %s, %v; want %d", n, node, err, want)
		}
	}
}
