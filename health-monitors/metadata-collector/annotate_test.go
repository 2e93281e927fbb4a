package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// socket is a kubelet's, which returns what the test sets.
type socket struct {
	podresources.UnimplementedPodResourcesListerServer
	mu   sync.Mutex
	pods map[string]string // name: ids with commas
}

func (s *socket) setPods(pods map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = pods
}

// List answers as the kubelet does.
func (s *socket) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &podresources.ListPodResourcesResponse{}
	for name, ids := range s.pods {
		p := &podresources.PodResources{Name: name, Namespace: "default", Containers: []*podresources.ContainerResources{{Name: "c"}}}
		if ids != "" {
			p.Containers[0].Devices = []*podresources.ContainerDevices{
				{ResourceName: "nvidia.com/gpu", DeviceIds: strings.Split(ids, ",")}, {ResourceName: "example.com/nic", DeviceIds: []string{"n"}},
			}
		}
		out.PodResources = append(out.PodResources, p)
	}
	return out, nil
}

func listen(t *testing.T) (*socket, *Kubelet) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s, server := &socket{}, grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	k, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return s, k
}

// podsNode is an annotator on the node n1 of a real API server.
type podsNode struct {
	*Annotator
	t     *testing.T
	admin kubernetes.Interface
	clock *clocktesting.FakeClock
}

func (n *podsNode) pod(name, on string) {
	n.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := n.admin.CoreV1().Pods("default").Create(n.t.Context(), p, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *podsNode) remove(name string) {
	n.t.Helper()
	now := int64(0)
	if err := n.admin.CoreV1().Pods("default").Delete(n.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		n.t.Fatal(err)
	}
}

// becomes looks, as every interval does, until the pod's annotation is as wanted.
func (n *podsNode) becomes(name, want string) {
	n.t.Helper()
	var got string
	testkit.Until(n.t, time.Minute, func() bool {
		if err := n.Poll(n.t.Context()); err != nil {
			n.t.Fatal(err)
		}
		p, err := n.admin.CoreV1().Pods("default").Get(n.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			n.t.Fatal(err)
		}
		got = p.Annotations[nodemark.DevicesAnnotation]
		return got == want
	})
}

func TestPodsAreAnnotatedWithTheirGPUs(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	pods, err := metadata.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	s, k := listen(t)
	clock := testkit.NewClock()
	n := &podsNode{t: t, admin: cluster.Client(), clock: clock, Annotator: &Annotator{
		Node: "n1", Kubelet: k, Pods: pods, Interval: time.Second, Refresh: time.Minute, Clock: clock,
		Log: slog.New(slog.DiscardHandler), Metrics: NewPodMetrics(prometheus.NewRegistry()),
	}}
	n.pod("train", "n1")
	n.pod("plain", "n1")
	n.pod("elsewhere", "n2")
	// The kubelet is ahead of the API server's cache: the pod is found at a later look.
	s.setPods(map[string]string{"train": "GPU-b,GPU-a", "plain": "", "elsewhere": "GPU-x"})
	const both, one = `{"devices":{"nvidia.com/gpu":["GPU-a","GPU-b"]}}`, `{"devices":{"nvidia.com/gpu":["GPU-a"]}}`
	n.becomes("train", both)
	n.becomes("plain", "")
	n.becomes("elsewhere", "") // not this node's

	s.setPods(map[string]string{"train": "GPU-a", "plain": ""})
	n.becomes("train", one)

	// Another pod of the name, with the same GPU: after the refresh.
	n.remove("train")
	n.pod("train", "n1")
	testkit.Until(t, time.Minute, func() bool {
		n.clock.Step(time.Minute)
		if err := n.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, err := n.admin.CoreV1().Pods("default").Get(t.Context(), "train", metav1.GetOptions{})
		return err == nil && p.Annotations[nodemark.DevicesAnnotation] == one
	})

	// The annotation does not name a GPU that the pod no longer has.
	s.setPods(map[string]string{"train": "", "plain": ""})
	n.becomes("train", "")
}

func TestAKubeletThatDoesNotAnswer(t *testing.T) {
	k, err := Dial(filepath.Join(t.TempDir(), "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	a := &Annotator{Node: "n1", Kubelet: k, Clock: testkit.NewClock()}
	if err := a.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "listing the devices of pods") {
		t.Errorf("a kubelet that is not there gave %v", err)
	}
	if ok, _ := a.Rounds().Ready(); ok {
		t.Error("ready without a look")
	}
}
