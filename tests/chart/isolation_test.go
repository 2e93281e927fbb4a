package chart

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// TestPortsAreClosed: a port that is neither metrics nor probes is reached by named
// pods only, and each port by somebody, but for one that is forwarded into the pod.
func TestPortsAreClosed(t *testing.T) {
	for _, name := range values {
		objects := rendered(t, file(name))
		var policies []networkingv1.NetworkPolicy
		for _, o := range objects {
			if o.GetKind() == "NetworkPolicy" {
				policies = append(policies, as[networkingv1.NetworkPolicy](t, o))
			}
		}
		for workload, pod := range workloads(t, objects) {
			for _, port := range pod.Spec.Containers[0].Ports {
				reached, guarded, open := reach(t, policies, pod, port.Name)
				forwarded := port.Name == "inspect" // of the loopback interface: no policy has to let anybody in
				if !guarded || reached == forwarded {
					t.Errorf("%s: port %s of %s: bounded by a policy %v, let in by one %v, want true and %v", name, port.Name, workload, guarded, reached, !forwarded)
				}
				if open != (port.Name == "metrics" || port.Name == "probes") {
					t.Errorf("%s: port %s of %s is open to everybody: %v", name, port.Name, workload, open)
				}
			}
		}
	}
	for _, o := range rendered(t, file("all"), "--set=networkPolicy.enabled=false") {
		if o.GetKind() == "NetworkPolicy" {
			t.Errorf("%s is rendered although it is switched off", o.GetName())
		}
	}
	closed := rendered(t, file("store"), "--set=networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus")
	for _, o := range closed {
		if o.GetKind() == "NetworkPolicy" && o.GetName() == "nvsentinel" {
			if from := as[networkingv1.NetworkPolicy](t, o).Spec.Ingress[0].From; len(from) != 1 || from[0].PodSelector.MatchLabels["app"] != "prometheus" {
				t.Errorf("metrics are for %v, want prometheus", from)
			}
		}
	}
}

// reach reports whether policies admit somebody to a pod at a port, whether they restrict the
// pod's ingress, and whether they admit everybody.
func reach(t *testing.T, policies []networkingv1.NetworkPolicy, pod corev1.PodTemplateSpec, port string) (reached, guarded, open bool) {
	t.Helper()
	for _, p := range policies {
		if !labels.SelectorFromSet(p.Spec.PodSelector.MatchLabels).Matches(labels.Set(pod.Labels)) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		guarded = true
		for _, rule := range p.Spec.Ingress {
			if len(rule.Ports) == 0 {
				t.Errorf("%s opens every port", p.Name)
			}
			for _, r := range rule.Ports {
				if r.Port.StrVal == port {
					reached, open = true, open || len(rule.From) == 0
				}
			}
		}
	}
	return reached, guarded, open
}

// nodeMonitors run on every node, and speak to a socket there, and not to the API server.
var nodeMonitors = []string{"syslog-health-monitor", "nic-health-monitor", "gpu-health-monitor"}

// TestPodsReachTheirDependencies: every pod's way out is bounded, and has what the pod
// speaks to, by the ports that the chart knows.
func TestPodsReachTheirDependencies(t *testing.T) {
	base := []string{"53/TCP", "53/UDP", "443/TCP", "6443/TCP"}
	stores := []string{"5432/TCP", "27017/TCP"}
	needs := map[string][]string{
		"gpu-health-monitor": {"53/TCP", "53/UDP", "5555/TCP"}, "metadata-collector": base,
		"kubernetes-object-monitor": base, "labeler": base, "node-health-check": base, "repair-chain": base, "csp-plugin-kwok": base, "csp-plugin-node": base,
		"csp-plugin-aws": append([]string{"443/TCP", "80/TCP"}, base...), "csp-plugin-azure": append([]string{"443/TCP", "80/TCP"}, base...),
		"csp-plugin-gcp": append([]string{"443/TCP", "80/TCP"}, base...), "csp-plugin-oci": append([]string{"443/TCP", "80/TCP"}, base...),
		"janitor": append([]string{"everything"}, base...),
		// In profile small it is the janitor and the exporter too.
		"nvsentinel-controller": append([]string{"everything"}, append(stores, base...)...),
		"event-exporter":        append([]string{"everything"}, append(stores, base...)...), "csp-health-monitor": append([]string{"443/TCP", "80/TCP"}, append(stores, base...)...),
	}
	for _, name := range values {
		objects := rendered(t, file(name))
		pods := workloads(t, objects)
		for workload, pod := range pods {
			want, special := needs[workload]
			switch {
			case special, slices.Contains(nodeMonitors, workload):
			case workload == "platform-connectors":
				want = append([]string{"8443/TCP platform-connectors-gateway"}, base...)
			default:
				want = append(slices.Clone(stores), base...)
			}
			want = slices.Compact(slices.Sorted(slices.Values(want)))
			if got, bounded := reachablePorts(t, objects, pod); !bounded || !slices.Equal(got, want) {
				t.Errorf("%s: %s is bounded %v and reaches %v, want %v", name, workload, bounded, got, want)
			}
		}
	}
}

// TestEachAloneIsBounded: policies do not depend on what else is installed.
func TestEachAloneIsBounded(t *testing.T) {
	const store, connector = "--set=store.secretName=nvsentinel-store", "--set=platformConnectors.enabled=true"
	alone := map[string][]string{
		"metadata-collector":        {"--set=metadataCollector.enabled=true"},
		"platform-connectors":       {store, connector},
		"syslog-health-monitor":     {store, connector, "--set=syslogHealthMonitor.enabled=true"},
		"gpu-health-monitor":        {store, connector, "--set=gpuHealthMonitor.enabled=true"},
		"nic-health-monitor":        {store, connector, "--set=nicHealthMonitor.enabled=true"},
		"kubernetes-object-monitor": {store, connector, "--set=kubernetesObjectMonitor.enabled=true"},
		"labeler":                   {"--set=labeler.enabled=true"},
		"csp-health-monitor":        {store, connector, "--set=" + cspMonitor},
		"health-events-analyzer":    {store, connector, "--set=healthEventsAnalyzer.enabled=true"},
		"fault-quarantine":          {store, "--set=faultQuarantine.enabled=true"},
		"node-drainer":              {store, "--set=nodeDrainer.enabled=true"},
		"fault-remediation":         {store, "--set=faultRemediation.enabled=true"},
		"event-exporter":            {store, "--set=eventExporter.enabled=true,eventExporter.config=x"},
		"node-health-check":         {"--set=nodeHealthCheck.enabled=true"},
		"repair-chain":              {"--set=repairChain.enabled=true"},
		"csp-plugin-kwok":           {"--set=cspPluginKwok.enabled=true"},
		"csp-plugin-node":           {"--set=cspPluginNode.enabled=true"},
		"csp-plugin-aws":            {"--set=cspPluginAws.enabled=true"},
		"csp-plugin-azure":          {"--set=cspPluginAzure.enabled=true"},
		"csp-plugin-gcp":            {"--set=cspPluginGcp.enabled=true"},
		"csp-plugin-oci":            {"--set=cspPluginOci.enabled=true"},
		"janitor":                   {"--set=janitor.enabled=true,janitor.cspPlugin.host=unix:///run/csp-plugin/socket"},
	}
	for workload := range workloads(t, rendered(t, file("all"))) {
		if parts := []string{"platform-connectors-gateway", "platform-connectors-cluster"}; alone[workload] == nil && !slices.Contains(parts, workload) {
			t.Errorf("%s was not tried alone", workload)
		}
	}
	for workload, with := range alone {
		objects := rendered(t, append([]string{file("nothing")}, with...)...)
		pod, there := workloads(t, objects)[workload]
		if _, bounded := reachablePorts(t, objects, pod); !there || !bounded {
			t.Errorf("%s is there: %v; where it may go is bounded: %v", workload, there, bounded)
		}
	}
}

// reachablePorts are the ports, and pods if they are named, that a pod may reach, and whether
// a policy bounds them.
func reachablePorts(t *testing.T, objects []*unstructured.Unstructured, pod corev1.PodTemplateSpec) (out []string, bounded bool) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		p := as[networkingv1.NetworkPolicy](t, o)
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if !selector.Matches(labels.Set(pod.Labels)) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			continue
		}
		bounded = true
		for _, rule := range p.Spec.Egress {
			to := ""
			for _, peer := range rule.To {
				to += " " + peer.PodSelector.MatchLabels["app.kubernetes.io/name"]
			}
			for _, r := range rule.Ports {
				protocol := corev1.ProtocolTCP
				if r.Protocol != nil {
					protocol = *r.Protocol
				}
				out = append(out, fmt.Sprintf("%s/%s%s", r.Port, protocol, to))
			}
			if len(rule.Ports) == 0 {
				out = append(out, "everything"+to)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out))), bounded
}

// TestNodesHoldLittle: a pod that does not speak to the API server has no token for
// it, publishers cannot write beside the socket, and controllers can be kept off the
// nodes that run jobs.
func TestNodesHoldLittle(t *testing.T) {
	pods := workloads(t, rendered(t, file("all"), "--set=controllers.avoidGpuNodes=required", "--set=controllers.nodeSelector.pool=control",
		"--set=controllers.tolerations[0].key=control", "--set=janitor.nodeSelector.pool=janitors"))
	for workload, pod := range pods {
		noAPI := slices.Contains(nodeMonitors, workload)
		if mounted := pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken; mounted == noAPI {
			t.Errorf("%s has a token for the API server: %v", workload, mounted)
		}
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if m.Name == "connector" && !m.ReadOnly {
				t.Errorf("%s can write into the folder of the connector's socket", workload)
			}
		}
		onNode := noAPI || workload == "platform-connectors" || workload == "metadata-collector"
		if onNode {
			continue
		}
		want := map[bool]string{true: "janitors", false: "control"}[workload == "janitor"]
		if pod.Spec.NodeSelector["pool"] != want || len(pod.Spec.Tolerations) != 2 || pod.Spec.Tolerations[0].Key != "control" {
			t.Errorf("%s goes to %v with %v, want pool %s", workload, pod.Spec.NodeSelector, pod.Spec.Tolerations, want)
		}
		if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
			t.Errorf("%s may run on a node with GPUs", workload)
			continue
		}
		affinity := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if affinity == nil || affinity.NodeSelectorTerms[0].MatchExpressions[0].Key != "nvidia.com/gpu.present" {
			t.Errorf("%s may run on a node with GPUs: %v", workload, affinity)
		}
	}
	for workload, pod := range workloads(t, rendered(t, file("store"))) {
		if !slices.Contains(nodeMonitors, workload) && pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			t.Errorf("%s cannot run on a cluster of one node", workload)
		}
	}
}

// TestStateIsItsOwners: what a service may write on the node no other one sees, but
// for the connector's socket and the GPU metadata file, which are there to be read:
// no folder that it mounts holds another one's.
func TestStateIsItsOwners(t *testing.T) {
	holds := func(folder, other string) bool {
		return strings.HasPrefix(path.Clean(other)+"/", path.Clean(folder)+"/")
	}
	shared := map[string]string{"/var/run/nvsentinel": "platform-connectors", "/var/lib/nvsentinel/metadata": "metadata-collector"}
	for _, name := range values {
		pods := workloads(t, rendered(t, file(name)))
		for owner, pod := range pods {
			for _, own := range hostMounts(pod) {
				if own.readOnly {
					continue
				}
				for other, pod := range pods {
					for _, m := range hostMounts(pod) {
						read := shared[own.path] == owner && m.path == own.path && m.readOnly
						if other != owner && !read && (holds(m.path, own.path) || holds(own.path, m.path)) {
							t.Errorf("%s: %s writes %s, and %s mounts %s, read-only %v", name, owner, own.path, other, m.path, m.readOnly)
						}
					}
				}
			}
		}
	}
}

// hostMount is a folder of the node in a container.
type hostMount struct {
	path     string
	readOnly bool
}

func hostMounts(pod corev1.PodTemplateSpec) []hostMount {
	var out []hostMount
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if h := pod.Spec.Volumes[i].HostPath; h != nil {
			out = append(out, hostMount{h.Path, m.ReadOnly})
		}
	}
	return out
}

// TestTheDriver: what loads the driver's library has it from the nvidia runtime, and
// what speaks to DCGM elsewhere has neither that nor the devices.
func TestTheDriver(t *testing.T) {
	const class, none = "--set=gpuHealthMonitor.runtimeClassName=other", "--set=gpuHealthMonitor.runtimeClassName="
	for name, tc := range map[string]struct {
		workload   string
		with       []string
		class      string
		driver     bool
		privileged bool
		folder     string // that of DCGM's socket
	}{
		"the collector":                   {"metadata-collector", nil, "nvidia", true, false, ""},
		"a host engine at a port":         {"gpu-health-monitor", nil, "", false, false, ""},
		"a host engine on a socket":       {"gpu-health-monitor", []string{"--set=gpuHealthMonitor.dcgm.address=unix:///run/dcgm/socket"}, "", false, false, "/run/dcgm"},
		"an embedded one":                 {"gpu-health-monitor", []string{"--set=gpuHealthMonitor.dcgm.mode=embedded"}, "nvidia", true, true, ""},
		"an embedded one with an address": {"gpu-health-monitor", []string{"--set=gpuHealthMonitor.dcgm.mode=embedded,gpuHealthMonitor.dcgm.address=unix:///run/dcgm/socket"}, "nvidia", true, true, ""},
		"a class of another name":         {"gpu-health-monitor", []string{"--set=gpuHealthMonitor.dcgm.mode=embedded", class}, "other", true, true, ""},
		"a default runtime that is it":    {"gpu-health-monitor", []string{"--set=gpuHealthMonitor.dcgm.mode=embedded", none}, "", true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := workloads(t, rendered(t, append([]string{file("all")}, tc.with...)...))[tc.workload]
			got := ""
			if pod.Spec.RuntimeClassName != nil {
				got = *pod.Spec.RuntimeClassName
			}
			c := pod.Spec.Containers[0]
			env := map[string]string{}
			for _, e := range c.Env {
				env[e.Name] = e.Value
			}
			driver := env["NVIDIA_VISIBLE_DEVICES"] == "all" && env["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
			privileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
			if _, node := env["NODE_NAME"]; got != tc.class || driver != tc.driver || privileged != tc.privileged || !node {
				t.Errorf("runtime class %q, driver %v, privileged %v, node %v; want %q, %v, %v, true", got, driver, privileged, node, tc.class, tc.driver, tc.privileged)
			}
			if mounted := slices.Contains(hostMounts(pod), hostMount{tc.folder, true}); mounted != (tc.folder != "") {
				t.Errorf("DCGM's socket in %q is mounted read-only: %v", tc.folder, mounted)
			}
			if slices.ContainsFunc(hostMounts(pod), func(m hostMount) bool { return m.path == "/run/dcgm" && m.path != tc.folder }) {
				t.Error("a socket is mounted that nobody speaks to")
			}
		})
	}
}
