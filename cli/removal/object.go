package removal

import (
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/pause"
)

// monitorState is where kubernetes-object-monitor keeps what it has reported.
const monitorState = "kubernetes-object-monitor-state"

// leases are those by which services elect their leader: service and task.
var leases = [][2]string{
	{"csp-health-monitor", "maintenances"},
	{"event-exporter", "events"},
	{"fault-quarantine", "events"},
	{"fault-remediation", "repairs"},
	{"health-events-analyzer", "events"},
	{"janitor", "repairs"},
	{"kubernetes-object-monitor", "policies"},
	{"labeler", "labels"},
	{"node-drainer", "drains"},
	{"node-health-check", "checks"},
	{"platform-connectors", "conditions"},
	{"repair-chain", "runs"},
}

// elects reports whether a Lease of the namespace is one of leases.
func elects(l coordinationv1.Lease) bool {
	return slices.ContainsFunc(leases, func(x [2]string) bool { return l.Name == x[0]+"-"+x[1] })
}

// leaseActive reports whether somebody holds a lease now.
func leaseActive(l coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return !now.After(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
}

// running are the services that are there: they would write again what is removed.
func running(f Facts) []string {
	out := slices.Clone(f.Workloads)
	for _, l := range f.Leases {
		if elects(l) && leaseActive(l, f.Now) {
			out = append(out, "the holder of Lease/"+l.Name+": "+*l.Spec.HolderIdentity)
		}
	}
	return out
}

func ofLeases(f Facts) (out []Item) {
	gvr := coordinationv1.SchemeGroupVersion.WithResource("leases")
	for _, l := range f.Leases {
		if !elects(l) {
			continue
		}
		item := removable(Lease, l.ObjectMeta, gvr)
		if leaseActive(l, f.Now) {
			item.Remove, item.Reason = false, InUse
		}
		out = append(out, item)
	}
	for _, l := range f.Claims {
		item := removable(Lease, l.ObjectMeta, gvr)
		switch holder := l.Spec.HolderIdentity; {
		case holder == nil:
			continue
		case *holder == string(record.FaultRemediation), strings.HasPrefix(*holder, "RepairRun-"): // of repair-chain
			if leaseActive(l, f.Now) {
				item.Note = "held by " + *holder
			}
		case strings.HasPrefix(*holder, "NodeHealthCheck-"): // medik8s' own operator has the same name
			item.Remove, item.Reason, item.Note = false, Uncertain, "held by "+*holder+", which may belong to medik8s"
		default:
			continue
		}
		out = append(out, item)
	}
	return out
}

func ofConfigMaps(maps []corev1.ConfigMap) (out []Item) {
	for _, m := range maps {
		if m.Name == pause.Name || m.Name == pause.FormerName || m.Name == monitorState || remembers(m) {
			out = append(out, removable(ConfigMap, m.ObjectMeta, corev1.SchemeGroupVersion.WithResource("configmaps")))
		}
	}
	return out
}

// remembers reports whether a plugin keeps in it what it has asked of a cloud: it is named
// after the plugin, and owned by the Node.
func remembers(m corev1.ConfigMap) bool {
	_, memo := m.Data["memo.json"]
	by := m.Labels["app.kubernetes.io/managed-by"]
	return memo && by != "" && strings.HasPrefix(m.Name, by+"-") &&
		slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
}

// removable is an object that is removed.
func removable(kind string, m metav1.ObjectMeta, gvr schema.GroupVersionResource) Item {
	return Item{
		Kind: kind, Namespace: m.Namespace, Name: m.Name, Remove: true, Reason: Managed,
		Target: Target{Resource: gvr, UID: string(m.UID), Version: m.ResourceVersion},
	}
}

// component begins the name under which a service writes Events (eventrecorder.Component).
const component = "nvsentinel-"

// ProjectEvent reports whether the suite wrote an Event: a service, or a connector about a
// fault of a node.
func ProjectEvent(e corev1.Event) bool {
	return slices.ContainsFunc(leases, func(x [2]string) bool { return e.Source.Component == component+x[0] }) ||
		e.Source.Component == "nvsentinel" && (e.InvolvedObject.Name == pause.Name || e.InvolvedObject.Name == pause.FormerName) ||
		e.InvolvedObject.Kind == "Node" && strings.HasSuffix(e.Reason, nodemark.UnhealthyReason(""))
}

func ofEvents(n int) []Item {
	if n == 0 {
		return nil
	}
	return []Item{{Kind: EventKind, Name: strconv.Itoa(n) + " Events", Reason: Expires}}
}

// Folders are where the chart has connectors and monitors write on a node, unless its
// values state otherwise.
var Folders = []string{"/var/run/nvsentinel", "/var/lib/nvsentinel"}

func folders() (out []Item) {
	for i, value := range []string{"hostPaths.run", "hostPaths.state"} {
		out = append(out, Item{Kind: Folder, Name: Folders[i], Reason: OnTheNode, Note: value + " of the chart, unless you set another one"})
	}
	return out
}
