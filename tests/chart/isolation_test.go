package chart

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestPortsAreClosed: a port that is neither metrics nor probes is reached by named
// pods only, and each port by somebody.
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
				if !guarded || !reached {
					t.Errorf("%s: port %s of %s: bounded by a policy %v, let in by one %v, want both", name, port.Name, workload, guarded, reached)
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

// reach says whether policies bound what comes to a pod, and let in somebody, or
// everybody, at a port.
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

// TestNodesHoldLittle: a pod that does not speak to the API server has no token for
// it, publishers cannot write beside the socket, and controllers can be kept off the
// nodes that run jobs.
func TestNodesHoldLittle(t *testing.T) {
	pods := workloads(t, rendered(t, file("all"), "--set=controllers.offGpuNodes=required", "--set=controllers.nodeSelector.pool=control",
		"--set=controllers.tolerations[0].key=control", "--set=janitor.nodeSelector.pool=janitors"))
	for workload, pod := range pods {
		noAPI := workload == "syslog-health-monitor"
		if mounted := pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken; mounted == noAPI {
			t.Errorf("%s has a token for the API server: %v", workload, mounted)
		}
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if m.Name == "connector" && !m.ReadOnly {
				t.Errorf("%s can write into the folder of the connector's socket", workload)
			}
		}
		onNode := workload == "syslog-health-monitor" || workload == "platform-connectors"
		if onNode {
			continue
		}
		want := map[bool]string{true: "janitors", false: "control"}[workload == "janitor"]
		if pod.Spec.NodeSelector["pool"] != want || len(pod.Spec.Tolerations) != 1 {
			t.Errorf("%s goes to %v with %v, want pool %s", workload, pod.Spec.NodeSelector, pod.Spec.Tolerations, want)
		}
		affinity := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if affinity == nil || affinity.NodeSelectorTerms[0].MatchExpressions[0].Key != "nvidia.com/gpu.present" {
			t.Errorf("%s may run on a node with GPUs: %v", workload, affinity)
		}
	}
	for workload, pod := range workloads(t, rendered(t, file("store"))) {
		if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			t.Errorf("%s cannot run on a cluster of one node", workload)
		}
	}
}
