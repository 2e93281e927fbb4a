package main

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/ec2fake"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// claim registers a Node by its own kubelet, which writes about itself everything that is
// true of an instance, except the zone. It returns the Node's name.
func (w *world) claim(t *testing.T, name, id string) string {
	t.Helper()
	node, i := w.namespace+"-"+name, w.fake.Instance(id)
	cloudtest.Register(t, w.cluster, node, "aws:///us-west-2c/"+id, corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: i.IP}, {Type: corev1.NodeInternalDNS, Address: i.DNS}, {Type: corev1.NodeHostName, Address: i.DNS},
		},
		NodeInfo: corev1.NodeSystemInfo{BootID: "boot-0"},
	})
	return node
}

// caller sends signals.
type caller struct{ v1.CSPPluginServiceClient }

func (c caller) reboot(t *testing.T, node string) error {
	_, err := c.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: node, IdempotencyKey: "reboot of " + node}, grpc.WaitForReady(true))
	return err
}

func (c caller) terminate(t *testing.T, node string) error {
	_, err := c.SendTerminateSignal(t.Context(), &v1.SendTerminateSignalRequest{NodeName: node, IdempotencyKey: "end of " + node}, grpc.WaitForReady(true))
	return err
}

// refused wants both signals to a node refused for good, with some words.
func (c caller) refused(t *testing.T, node, words string) {
	t.Helper()
	for what, err := range map[string]error{"reboot": c.reboot(t, node), "termination": c.terminate(t, node)} {
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("%s of node %s: %v, want FailedPrecondition: %s", what, node, err, words)
		}
	}
}

// A Node whose kubelet claims somebody else's instance by everything that it writes is
// refused permanently, that instance is not signaled, and its own Node is repaired all the
// same.
func TestClaims(t *testing.T) {
	w := newWorld(t, localcluster.ForTest(t, localcluster.Options{}))
	c := caller{v1.NewCSPPluginServiceClient(w.start(t))}
	lone := "i-0fedcba987654321" // of no Node
	w.fake.Add(lone, func(i *ec2fake.Instance) {
		i.DNS, i.IP = "ip-10-0-0-7.us-west-2.compute.internal", "10.0.0.7"
		i.Further = w.namespace + "-by-address" // an interface that the role of nodes may attach
	})
	c.refused(t, w.claim(t, "by-address", lone), "the cloud has other names for that machine")
	if i := w.fake.Instance(lone); i.Reboots+i.Terminates > 0 {
		t.Errorf("the instance of no node was told: %+v", i)
	}
	c.refused(t, w.claim(t, "claims-a", w.id("a")), "also claimed by nodes")
	if err := c.reboot(t, w.namespace+"-a"); err != nil || w.fake.Instance(w.id("a")).Reboots != 1 {
		t.Errorf("a reboot of a claimed instance's own node: %v", err)
	}
	c.refused(t, w.claim(t, "claims-b", w.id("b")), "also claimed by nodes")
	if err := c.terminate(t, w.namespace+"-b"); err != nil || w.fake.Instance(w.id("b")).Terminates != 1 {
		t.Errorf("a termination of a claimed instance's own node: %v", err)
	}
}

// Nodes are proven by the instance's id as well, and by a tag that the operator names.
func TestProofs(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	w := newWorld(t, cluster)
	add := func(node, id string) {
		t.Helper()
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: node, BootID: "boot-0", ProviderID: "aws:///us-west-2a/" + id}); err != nil {
			t.Fatal(err)
		}
	}
	byID, byTag, ours := w.id("by-id"), w.id("by-tag"), map[string]string{"kubernetes.io/cluster/c1": "owned"}
	w.fake.Add(byID, func(i *ec2fake.Instance) { i.DNS, i.Tags = "ip-10-0-0-8.us-west-2.compute.internal", ours })
	w.fake.Add(byTag, func(i *ec2fake.Instance) { i.Tags = map[string]string{"Name": w.namespace + "-tagged"} })
	add(byID, byID)
	add(w.namespace+"-tagged", byTag)

	w.more = []string{"--cluster-tag=kubernetes.io/cluster/c1=owned"}
	c := caller{v1.NewCSPPluginServiceClient(w.start(t))}
	if err := c.reboot(t, byID); err != nil {
		t.Errorf("a node named after its instance's id: %v", err)
	}
	c.refused(t, w.namespace+"-a", "--cluster-tag")
	w.kill(t)
	w.more = []string{"--node-name-from=private-dns-name"}
	c = caller{v1.NewCSPPluginServiceClient(w.start(t))}
	if err := c.terminate(t, byID); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a name that does not count: %v, want FailedPrecondition", err)
	}
	c.refused(t, w.namespace+"-tagged", "--node-name-from=tag:KEY")
	w.kill(t)
	w.more = []string{"--node-name-from=tag:Name"}
	c = caller{v1.NewCSPPluginServiceClient(w.start(t))}
	if err := c.reboot(t, w.namespace+"-tagged"); err != nil || w.fake.Instance(byTag).Reboots != 1 {
		t.Errorf("a node that the tag names: %v", err)
	}
}
