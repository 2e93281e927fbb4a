package faultquarantine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// site is one cluster, store and configuration that processes work on.
type site struct {
	t          *testing.T
	cluster    *localcluster.Cluster
	kubeconfig string
	dsn        string
	store      store.Store
	dir        string
	config     string
}

// newSite makes a site with an empty store, and the rights and policies that the chart
// ships.
func newSite(t *testing.T, cluster *localcluster.Cluster, dsn string) *site {
	t.Helper()
	for _, name := range []string{"rbac.yaml", "nodes.yaml", "release.yaml", "lifted-by.yaml"} {
		text, err := os.ReadFile("../distros/helm/nvsentinel/manifests/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), "nvsentinel", "fault-quarantine", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, cluster: cluster, kubeconfig: kubeconfig, dsn: dsn, dir: t.TempDir()}
	s.store = storetest.Open(t, dsn, storeopen.Options{})
	s.config = filepath.Join(s.dir, "config.toml")
	s.configure("")
	s.awaitPolicies()
	return s
}

// awaitPolicies waits until the API server notes who uncordons a node: a new policy is
// active a little later.
func (s *site) awaitPolicies() {
	s.t.Helper()
	const probe = "policy-probe"
	if _, err := s.cluster.AddNode(s.t.Context(), localcluster.NodeSpec{Name: probe}); err != nil {
		s.t.Fatal(err)
	}
	testkit.Until(s.t, waitTimeout, func() bool {
		s.edit(probe, func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			nodemark.Annotate(n, nodemark.QuarantineHealthEventIsCordoned, nodemark.True)
		})
		s.uncordon(probe)
		return s.node(probe).Annotations[nodemark.LiftedByAnnotation] != ""
	})
	if err := s.cluster.DeleteNode(s.t.Context(), probe); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) configure(text string) {
	s.t.Helper()
	text = "dryRun = false\n" + text
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.config+".new", s.config); err != nil {
		s.t.Fatal(err)
	}
}

// start runs the service with more flags; items with "=" before the first flag
// are its environment.
func (s *site) start(extra ...string) *process {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	args := []string{"--config", s.config, "--store", s.dsn, "--single-host", "--default-budgets=false", "--kubeconfig", s.kubeconfig, "--metrics-address", "127.0.0.1:0"}
	var env []string
	for len(extra) > 0 && !strings.HasPrefix(extra[0], "-") {
		env, extra = append(env, extra[0]), extra[1:]
	}
	return launch(s.t, path, env, append(args, extra...))
}

// nodes makes n Nodes that live as long as the test, oldest first.
func (s *site) nodes(prefix string, n int, edit func(*localcluster.NodeSpec)) []string {
	s.t.Helper()
	names := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
		spec := localcluster.NodeSpec{Name: names[i], ProviderID: "p-" + names[i]}
		if edit != nil {
			edit(&spec)
		}
		all.Go(func() {
			if _, err := s.cluster.AddNode(s.t.Context(), spec); err != nil {
				s.t.Error(err)
			}
		})
		s.t.Cleanup(func() {
			if err := s.cluster.DeleteNode(context.Background(), names[i]); err != nil {
				s.t.Log(err)
			}
		})
	}
	if all.Wait(); s.t.Failed() {
		s.t.FailNow()
	}
	return names
}

// fault stores a fault of a node that the default rules match.
func (s *site) fault(node string, edit ...func(*record.Record)) record.Record {
	s.t.Helper()
	return s.event(node, append([]func(*record.Record){func(r *record.Record) { r.Event.IsFatal = true }}, edit...)...)
}

// recovery stores a recovery of everything the monitor reported of a node.
func (s *site) recovery(node string) record.Record {
	s.t.Helper()
	return s.event(node, func(r *record.Record) {
		r.Event.IsHealthy, r.Event.EntitiesImpacted, r.Event.ErrorCode = true, nil, nil
	})
}

func (s *site) event(node string, edit ...func(*record.Record)) record.Record {
	s.t.Helper()
	r := storetest.Record(node, append([]func(*record.Record){func(r *record.Record) {
		r.Node, r.CreatedAt = record.NodeIdentity{ProviderID: "p-" + node}, time.Now()
		r.Seq, r.SeqEpoch = 0, ""
		r.Event.QuarantineOverrides, r.Event.DrainOverrides, r.Event.Metadata = nil, nil, nil
		r.Event.ProcessingStrategy = record.Process
	}}, edit...)...)
	storetest.MustAppend(s.t, s.store, r)
	return r
}

func (s *site) get(id string) record.Record {
	s.t.Helper()
	return storetest.MustGet(s.t, s.store, id)
}

// await waits for a record's verdict and its place in quarantine.
func (s *site) await(id string, reason record.Reason, quarantine record.Quarantine) record.Record {
	s.t.Helper()
	var r record.Record
	defer func() {
		if s.t.Failed() {
			s.t.Logf("record %s is %s %s", id, r.Reason(), r.Status.NodeQuarantined)
		}
	}()
	testkit.Until(s.t, waitTimeout, func() bool {
		r = s.get(id)
		return r.Reason() == reason && r.Status.NodeQuarantined == quarantine
	})
	return r
}

func (s *site) node(name string) *corev1.Node {
	s.t.Helper()
	node, err := s.cluster.Client().CoreV1().Nodes().Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return node
}

// awaitNode waits until a Node looks as wanted.
func (s *site) awaitNode(name string, wanted func(*corev1.Node) bool) *corev1.Node {
	s.t.Helper()
	var node *corev1.Node
	defer func() {
		if s.t.Failed() {
			s.t.Logf("node %s: %+v %v", name, node.Spec, node.Annotations)
		}
	}()
	testkit.Until(s.t, waitTimeout, func() bool { node = s.node(name); return wanted(node) })
	return node
}

// quarantined reports whether a Node is cordoned in a session.
func quarantined(n *corev1.Node) bool { return n.Spec.Unschedulable && nodemark.Session(n) != "" }

// clean reports whether nothing of the project is left on a Node.
func clean(n *corev1.Node) bool { return !n.Spec.Unschedulable && !nodemark.HasMarks(n) }

// inQuarantine are the names of the nodes that are.
func (s *site) inQuarantine(names []string) []string {
	s.t.Helper()
	list, err := s.cluster.Client().CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, n := range list.Items {
		if slices.Contains(names, n.Name) && quarantined(&n) {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// reasons counts the verdicts of all records.
func (s *site) reasons() map[record.Reason]int {
	s.t.Helper()
	list, err := s.store.List(s.t.Context(), store.Query{})
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[record.Reason]int{}
	for _, r := range list {
		out[r.Reason()]++
	}
	return out
}

// edit changes a Node as a person does, whatever else happens to it.
func (s *site) edit(name string, change func(*corev1.Node)) {
	s.t.Helper()
	testkit.Until(s.t, waitTimeout, func() bool {
		node := s.node(name)
		_, err := kube.PatchNode(s.t.Context(), s.cluster.Client(), node, change)
		return err == nil
	})
}

// uncordon sends what kubectl uncordon sends: a strategic merge patch without a
// resourceVersion.
func (s *site) uncordon(name string) {
	s.t.Helper()
	_, err := s.cluster.Client().CoreV1().Nodes().Patch(s.t.Context(), name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":null}}`), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// waitForEvent waits for an Event about a Node.
func (s *site) waitForEvent(node, kind, reason, part string) {
	s.t.Helper()
	testkit.Until(s.t, waitTimeout, func() bool {
		list, err := s.cluster.Client().CoreV1().Events("default").List(s.t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node + ",reason=" + reason,
		})
		if err != nil && !apierrors.IsNotFound(err) {
			s.t.Fatal(err)
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Type == kind && strings.Contains(e.Message, part) })
	})
}

func pretty(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
