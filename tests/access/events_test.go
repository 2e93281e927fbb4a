package access

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// as acts as a user by the administrator's right to impersonate.
func (w *world) as(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := w.cluster.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return client(t, config)
}

func (w *world) kubelet(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	return w.as(t, "system:node:"+node, "system:nodes")
}

// editor acts as a user who may write Events in a namespace, as ClusterRole edit
// has it.
func (w *world) editor(t *testing.T, ns string) kubernetes.Interface {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tenant-" + ns}},
	}
	if _, err := w.admin.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.admin.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return w.as(t, "tenant-"+ns)
}

// newEvent is one of events.k8s.io about a pod, by a reporter.
func newEvent(ns, name, reporter, instance string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, EventTime: metav1.NowMicro(),
		ReportingController: reporter, ReportingInstance: instance, Action: "Pulling", Reason: "Failed", Type: corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "train"},
		Note:      "nvidia-container-cli: initialization error: nvml error: driver not loaded",
	}
}

// oldEvent is one of the core group, as a kubelet's recorder writes it.
func oldEvent(ns, name, reporter, host string) *corev1.Event {
	now := metav1.NewTime(time.Now())
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: reporter, Host: host}, Reason: "Failed", Type: corev1.EventTypeWarning,
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "train"},
	}
}

// events are an account's hands.
type events struct {
	t      *testing.T
	client kubernetes.Interface
	ns     string
}

func (e events) write(event *eventsv1.Event) error {
	_, err := e.client.EventsV1().Events(e.ns).Create(e.t.Context(), event, metav1.CreateOptions{})
	return err
}

func (e events) writeOld(event *corev1.Event, change ...func(*corev1.Event)) error {
	for _, c := range change {
		c(event)
	}
	_, err := e.client.CoreV1().Events(e.ns).Create(e.t.Context(), event, metav1.CreateOptions{})
	return err
}

func (e events) patch(name, patch string) error {
	_, err := e.client.EventsV1().Events(e.ns).Patch(e.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (e events) patchOld(name, patch string) error {
	_, err := e.client.CoreV1().Events(e.ns).Patch(e.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// TestOnlyTheKubeletOfANodeReportsForIt: an editor of the namespace and the kubelet
// of another node try to have an Event that the policy NVMLError would believe.
func TestOnlyTheKubeletOfANodeReportsForIt(t *testing.T) {
	w := newWorld(t)
	ns := w.cluster.Namespace(t)
	tenant, evil, own := events{t, w.editor(t, ns), ns}, events{t, w.kubelet(t, "evil"), ns}, events{t, w.kubelet(t, "victim"), ns}
	testkit.Until(t, 2*time.Minute, func() bool { // a new policy takes effect a little later
		_, err := tenant.client.EventsV1().Events(ns).Create(t.Context(), newEvent(ns, "probe", "kubelet", "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refused(err) && strings.Contains(err.Error(), "only a kubelet writes")
	})
	reporting := func(e *corev1.Event) { e.ReportingController, e.ReportingInstance = "kubelet", "victim" }
	for what, err := range map[string]error{
		"the kubelet of the node":            own.write(newEvent(ns, "new", "kubelet", "victim")),
		"the same, in the core group":        own.writeOld(oldEvent(ns, "old", "kubelet", "victim"), reporting),
		"one that names no instance":         own.writeOld(oldEvent(ns, "bare", "kubelet", "victim")),
		"a repeat of it":                     own.patchOld("bare", `{"count":2,"lastTimestamp":"2026-01-01T00:00:00Z"}`),
		"a series":                           own.patch("new", `{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`),
		"another reporter on the node":       own.write(newEvent(ns, "npd", "node-problem-detector", "victim")),
		"a tenant's controller":              tenant.write(newEvent(ns, "tenants", "team/controller", "victim")),
		"the same, in the core group, twice": tenant.writeOld(oldEvent(ns, "tenants-old", "team", "x")),
		"a tenant's repeat":                  tenant.patchOld("tenants-old", `{"count":2}`),
	} {
		if err != nil {
			t.Errorf("%s: %v, want it written", what, err)
		}
	}
	for what, err := range map[string]error{
		"a tenant":                                  tenant.write(newEvent(ns, "f1", "kubelet", "victim")),
		"a tenant, in the core group":               tenant.writeOld(oldEvent(ns, "f2", "kubelet", "victim")),
		"a tenant, as controller alone":             tenant.writeOld(oldEvent(ns, "f3", "team", "x"), reporting),
		"a tenant who turns his own into one":       tenant.patchOld("tenants-old", `{"reportingComponent":"kubelet","reportingInstance":"victim"}`),
		"a tenant who turns another":                tenant.patch("tenants", `{"reportingController":"kubelet"}`),
		"a tenant who changes a kubelet's":          tenant.patchOld("old", `{"message":"nvidia-container-cli: nvml error"}`),
		"a tenant who takes a kubelet's name away":  tenant.patchOld("bare", `{"source":{"component":"team"}}`),
		"another kubelet":                           evil.write(newEvent(ns, "f4", "kubelet", "victim")),
		"another kubelet, in the core group":        evil.writeOld(oldEvent(ns, "f5", "kubelet", "victim")),
		"another kubelet with its own host":         evil.writeOld(oldEvent(ns, "f6", "kubelet", "evil"), reporting),
		"another kubelet that changes it":           evil.patchOld("old", `{"count":9}`),
		"another kubelet that takes it over":        evil.patchOld("bare", `{"source":{"host":"evil"},"reportingInstance":"evil"}`),
		"a user named like a node, of no node":      events{t, w.as(t, "system:node:victim", "system:masters"), ns}.write(newEvent(ns, "f7", "kubelet", "victim")),
		"an administrator: it is not the kubelet's": events{t, w.admin, ns}.write(newEvent(ns, "f8", "kubelet", "victim")),
	} {
		if !refused(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") && !strings.Contains(err.Error(), "immutable") {
			t.Errorf("%s: %v, want it refused by the policy", what, err)
		}
	}
}

// TestConnectorPublishesAboutItsNode: Events about another Node are refused, and those
// that a connector writes, repeats included, are not.
func TestConnectorPublishesAboutItsNode(t *testing.T) {
	w := newWorld(t)
	own, victim := w.plain(t, "own"), w.plain(t, "victim")
	connector := w.onNode(t, "platform-connectors", own.Name)
	at := time.Now()
	report := func(node *corev1.Node, message string) error {
		at = at.Add(time.Second)
		return nodeclient.CountFault(t.Context(), connector.CoreV1().Events("default"), node, nodeclient.FaultEvent{
			Component: "gpu-health-monitor", Reason: "GpuInforomWatch", Message: message, Times: 1, Last: at,
		})
	}
	tries := 0
	testkit.Until(t, 2*time.Minute, func() bool {
		tries++ // a message of its own, since a repeat needs the event before
		err := report(victim, strings.Repeat("x", tries))
		return refused(err) && strings.Contains(err.Error(), "about the node of its token only")
	})
	for range 2 {
		if err := report(own, "a fault"); err != nil {
			t.Errorf("an event about its own node: %v", err)
		}
	}
}

// TestClusterConnectorPublishesAboutAnyNode: it uses its own account, and does not count an
// event twice when it sends it again.
func TestClusterConnectorPublishesAboutAnyNode(t *testing.T) {
	w := newWorld(t)
	connector := w.account(t, "platform-connectors-cluster")
	at := time.Now()
	for i, node := range []*corev1.Node{w.plain(t, "any"), w.plain(t, "other")} {
		f := nodeclient.FaultEvent{Component: "kubernetes-object-monitor", Reason: "PolicyIsNotHealthy", Message: "m", Times: 2}
		for _, last := range []time.Time{at, at, at.Add(time.Minute)} {
			f.Last = last
			if err := nodeclient.CountFault(t.Context(), connector.CoreV1().Events("default"), node, f); err != nil {
				t.Fatalf("node %d: %v", i, err)
			}
		}
		list, err := w.admin.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + node.Name})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Count != 4 {
			t.Errorf("node %s has %+v, want one Event, counted 4 times", node.Name, list.Items)
		}
	}
}

// TestServicesPublishEvents: with its own account each service writes an Event, and raises its
// count when the same happens again, which is all that it may do.
func TestServicesPublishEvents(t *testing.T) {
	w := newWorld(t)
	node := w.plain(t, "told").Name
	policies := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "nvsentinel", Name: "kubernetes-object-monitor-state", UID: "told"}
	for service, about := range map[string]corev1.ObjectReference{
		"fault-quarantine": eventrecorder.Node(node), "node-drainer": eventrecorder.Node(node), "fault-remediation": eventrecorder.Node(node),
		"janitor": eventrecorder.Node(node), "kubernetes-object-monitor": policies,
	} {
		registry := prometheus.NewRegistry()
		client := w.account(t, service)
		r := eventrecorder.New(client, eventrecorder.Component(service), clock.RealClock{}, slog.New(slog.NewTextHandler(t.Output(), nil)), registry)
		for range 2 {
			r.Event(about, corev1.EventTypeNormal, "Told", "m")
		}
		if err := r.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		events := w.admin.CoreV1().Events(metav1.NamespaceAll)
		list, err := events.List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Told,source=nvsentinel-" + service + ",involvedObject.uid=" + string(about.UID)})
		if err != nil || len(list.Items) != 1 || list.Items[0].Count != 2 {
			t.Errorf("%s has told %+v, %v; want one Event, counted twice", service, list, err)
			continue
		}
		if _, err := client.CoreV1().Events(list.Items[0].Namespace).Get(t.Context(), list.Items[0].Name, metav1.GetOptions{}); !refused(err) {
			t.Errorf("%s reads Events: %v", service, err)
		}
	}
}
