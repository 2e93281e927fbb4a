// Package objects takes what policies find in Kubernetes objects the whole way
// with real processes: the two replicas of the object monitor's manifest, the
// connectors of their nodes, the store, the connector of the control plane, and
// fault-quarantine, to a cordon and back.
package objects

import (
	"bytes"
	"cmp"
	"context"
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

	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	agent     = "kubernetes-object-monitor"
	namespace = "nvsentinel"
	limit     = 3 * time.Minute // of one step; it takes seconds
)

// publishers lets the monitor publish events about all nodes, as its page states.
const publishers = `
[[publishers.agent]]
name = "kubernetes-object-monitor"
account = "system:serviceaccount:nvsentinel:kubernetes-object-monitor"
clusterWide = true
checks = ["GPUNodeNotReady", "NVMLError", "PodFailed", "Broken"]
`

// further are policies beside those of the manifest: a Pod names its node
// itself, and one that a test can switch.
const further = `
[[policies]]
name = "PodFailed"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Pod"
namespace = "training"
[policies.predicate]
expression = "resource.status.phase == 'Failed'"
[policies.nodeAssociation]
expression = "resource.spec.nodeName"
[policies.healthEvent]
componentClass = "Storage"
isFatal = true
message = "a pod of the storage check has failed"
recommendedAction = "CONTACT_SUPPORT"

[[policies]]
name = "Broken"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Node"
[policies.predicate]
expression = "resource.metadata.?labels['test/broken'].orValue('') == 'true'"
[policies.healthEvent]
componentClass = "Node"
isFatal = true
message = "broken by label"
recommendedAction = "CONTACT_SUPPORT"
`

// site is a running suite with two monitors.
type site struct {
	fleet    *fleet.Fleet
	policies string // file of both monitors
	agents   string // the connectors' file
	clock    string // file that sets their clocks wrong
	monitors []*fleet.Service
	targets  []string // nodes without a monitor
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
	connectors := filepath.Join(t.TempDir(), "connectors.toml")
	write(t, connectors, publishers)
	f, err := fleet.Start(t.Context(), fleet.Options{
		Nodes: 4, Store: "sqlite", Audit: true, Root: root, Bin: bin, Progress: &progress, SettleTime: time.Second, RebootTime: time.Second,
		Runs:       func(service, _ string) bool { return service == fleet.Connector || service == "fault-quarantine" },
		Publishers: connectors, QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	s := &site{fleet: f, policies: filepath.Join(f.Dir, "policies.toml"), agents: connectors, clock: filepath.Join(f.Dir, "clock")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(s.targets[0], 12))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.showConditions(t, connectors)
	s.deploy(t, root)
	return s
}

// showConditions starts the connector of the control plane.
func (s *site) showConditions(t *testing.T, config string) {
	kubeconfig, err := s.fleet.Cluster.ServiceAccountKubeconfig(t.Context(), namespace, "platform-connectors-cluster", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.fleet.Launch("platform-connectors-cluster", "platform-connectors", []string{
		"--role=cluster", "--config", config, "--store", s.fleet.DSN, "--single-host", "--kubeconfig", kubeconfig, "--metrics-address", "127.0.0.1:0",
	}, nil)
}

// deploy applies the monitor's manifest and runs a process for each of its pods,
// which the cluster places and only pretends to run: with the pod's own command
// line, account, token and policies, on the pod's node.
func (s *site) deploy(t *testing.T, root string) {
	s.targets = s.fleet.NodeNames()
	manifest, err := os.Open(filepath.Join(root, "distros/helm/nvsentinel/manifests", agent, "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer manifest.Close()
	if err := s.fleet.Cluster.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
	var pods []corev1.Pod
	client := s.fleet.Cluster.Client().CoreV1()
	await(t, "two pods of the monitor", func() (bool, string) {
		list, err := client.Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + agent})
		if err != nil {
			return false, err.Error()
		}
		pods = list.Items
		running := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		return len(running) == 2, fmt.Sprintf("%d run", len(running))
	})
	if pods[0].Spec.NodeName == pods[1].Spec.NodeName {
		t.Fatalf("both pods are on node %s", pods[0].Spec.NodeName)
	}
	config, err := client.ConfigMaps(namespace).Get(t.Context(), "kubernetes-health-monitor-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.policies, config.Data["policies.toml"]+further)
	kubeconfig, err := s.fleet.Cluster.ServiceAccountKubeconfig(t.Context(), namespace, agent, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i, pod := range pods {
		s.targets = slices.DeleteFunc(s.targets, func(node string) bool { return node == pod.Spec.NodeName })
		args := append(slices.Clone(pod.Spec.Containers[0].Args),
			"--kubeconfig="+kubeconfig, "--policy-config-path="+s.policies, "--publishers-config-path="+s.agents, "--platform-connector-token-path="+s.token(t, pod),
			"--platform-connector-socket=unix://"+s.fleet.Socket(pod.Spec.NodeName), "--metrics-bind-address=127.0.0.1:0",
			"--health-probe-bind-address=127.0.0.1:0", "--resync-period=1s",
			"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=400ms")
		s.monitors = append(s.monitors, s.fleet.Launch(fmt.Sprintf("%s-%d", agent, i+1), agent, args, s.env()))
	}
}

// env lets the monitors' clocks jump, and whatever else is given.
func (s *site) env(more ...string) []string { return append(more, "NVSENTINEL_CLOCK="+s.clock) }

// token writes the token that the manifest projects into a pod, as the pod's
// kubelet would.
func (s *site) token(t *testing.T, pod corev1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		if volume.Name != "token" {
			continue
		}
		projection := volume.Projected.Sources[0].ServiceAccountToken
		token, err := s.fleet.Cluster.Client().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{
				Audiences: []string{projection.Audience}, ExpirationSeconds: projection.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(s.fleet.Dir, pod.Name+".token")
		write(t, file, token.Status.Token)
		return file
	}
	t.Fatal("the manifest projects no token")
	return ""
}

// jump sets the monitors' clocks ahead, in one step: they may read it at any time.
func (s *site) jump(t *testing.T, by time.Duration) {
	write(t, s.clock+".new", by.String())
	if err := os.Rename(s.clock+".new", s.clock); err != nil {
		t.Fatal(err)
	}
}

// expect waits until the store has these events of a check about a node, no
// others, and the node is cordoned and its condition shows the fault, or neither.
func (s *site) expect(t *testing.T, node, check string, events ...string) {
	t.Helper()
	s.expectNode(t, node, check, events[len(events)-1] == "fault", events)
}

// expectStored is expect for events that change nothing in the cluster.
func (s *site) expectStored(t *testing.T, node, check string, events ...string) {
	t.Helper()
	s.expectNode(t, node, check, false, events)
}

func (s *site) expectNode(t *testing.T, node, check string, faulty bool, events []string) {
	t.Helper()
	await(t, fmt.Sprintf("%s of %s on %s", strings.Join(events, ", "), check, node), func() (bool, string) {
		reported := s.events(t, node, check)
		if len(reported) > len(events) {
			t.Fatalf("%s of %s on %s, want %s", reported, check, node, events)
		}
		object, err := s.fleet.Node(t.Context(), node)
		if err != nil {
			return false, err.Error()
		}
		session := object.Annotations[nodemark.SessionAnnotation] != ""
		at := slices.IndexFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == check })
		shown := at >= 0 && object.Status.Conditions[at].Status == corev1.ConditionTrue
		ok := slices.Equal(reported, events) && object.Spec.Unschedulable == faulty && session == faulty && shown == faulty
		return ok, fmt.Sprintf("events %s, cordoned %v, session %v, condition %v", reported, object.Spec.Unschedulable, session, shown)
	})
}

// events are the stored events of a check about a node, in append order.
func (s *site) events(t *testing.T, node, check string) []string {
	records, err := s.fleet.Records(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	var reported []string
	for _, r := range records {
		switch {
		case r.Event.CheckName != check:
		case r.Event.IsHealthy:
			reported = append(reported, "recovery")
		default:
			reported = append(reported, "fault")
		}
	}
	return reported
}

// label switches the policy Broken on a node.
func (s *site) label(t *testing.T, node string, broken bool) {
	t.Helper()
	await(t, "the label", func() (bool, string) {
		object, err := s.fleet.Node(t.Context(), node)
		if err == nil {
			object.Labels["test/broken"] = fmt.Sprint(broken)
			_, err = s.fleet.Cluster.Client().CoreV1().Nodes().Update(t.Context(), object, metav1.UpdateOptions{})
		}
		return err == nil, fmt.Sprint(err)
	})
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
