package chart

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestNamespaceOverride: everything is as if the release were in that namespace.
func TestNamespaceOverride(t *testing.T) {
	want := rendered(t, file("all"), "--namespace=elsewhere")
	if diff := cmp.Diff(want, rendered(t, file("all"), "--set=namespaceOverride=elsewhere")); diff != "" {
		t.Errorf("objects (-release +override):\n%s", diff)
	}
}

// TestLeftToOthers: roles and accounts can be somebody else's; nothing else goes with
// them.
func TestLeftToOthers(t *testing.T) {
	roles := []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
	all := rendered(t, file("all"))
	for value, kinds := range map[string][]string{"rbac.create": roles, "serviceAccount.create": {"ServiceAccount"}} {
		want := slices.DeleteFunc(slices.Clone(all), func(o *unstructured.Unstructured) bool { return slices.Contains(kinds, o.GetKind()) })
		got := rendered(t, file("all"), "--set="+value+"=false")
		if len(want) == len(all) || !cmp.Equal(want, got) {
			t.Errorf("%s=false leaves %d objects of %d, want %d", value, len(got), len(all), len(want))
		}
	}
}

// TestAccountAnnotations: those of all accounts, and over them those of one.
func TestAccountAnnotations(t *testing.T) {
	objects := rendered(t, file("two"), "--set=serviceAccount.annotations.a=all,faultQuarantine.serviceAccountAnnotations.a=own,cspPluginAws.serviceAccountAnnotations.b=aws")
	for _, o := range objects {
		if o.GetKind() != "ServiceAccount" {
			continue
		}
		want := map[string]string{"a": "all"}
		switch o.GetName() {
		case "fault-quarantine":
			want["a"] = "own"
		case "csp-plugin-aws":
			want["b"] = "aws"
		}
		got := o.GetAnnotations()
		delete(got, "eks.amazonaws.com/role-arn")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", o.GetName(), diff)
		}
	}
}

// TestMonitors: a PodMonitor and a ServiceMonitor, each only where the values request it, scrape
// the same pods in the same way; the latter has its Service.
func TestMonitors(t *testing.T) {
	const settings = "--set=podMonitor.labels.release=p,podMonitor.annotations.a=b,podMonitor.interval=15s,podMonitor.scrapeTimeout=5s," +
		"podMonitor.relabelings[0].action=keep,podMonitor.metricRelabelings[0].action=drop"
	endpoint := map[string]any{
		"port": "metrics", "interval": "15s", "scrapeTimeout": "5s",
		"relabelings": []any{map[string]any{"action": "keep"}}, "metricRelabelings": []any{map[string]any{"action": "drop"}},
	}
	for kind, tc := range map[string]struct{ value, endpoints string }{
		"PodMonitor": {"podMonitor.enabled", "podMetricsEndpoints"}, "ServiceMonitor": {"serviceMonitor.enabled", "endpoints"},
	} {
		t.Run(kind, func(t *testing.T) {
			if find(rendered(t, file("store")), kind, "nvsentinel") != nil {
				t.Error("it is there by default")
			}
			objects := rendered(t, file("store"), settings, "--set="+tc.value+"=true")
			monitor := find(objects, kind, "nvsentinel")
			if monitor == nil || monitor.GetLabels()["release"] != "p" || monitor.GetAnnotations()["a"] != "b" {
				t.Fatalf("it is %v", monitor)
			}
			want := map[string]any{
				"selector":   map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/part-of": "nvsentinel"}},
				tc.endpoints: []any{endpoint},
			}
			if diff := cmp.Diff(want, monitor.Object["spec"]); diff != "" {
				t.Errorf("it says (-want +got):\n%s", diff)
			}
			if service := find(objects, "Service", "nvsentinel-metrics"); (service != nil) != (kind == "ServiceMonitor") {
				t.Errorf("its Service is %v", service)
			}
		})
	}
}

// TestStages: each file lets more services act than the one before, and sets the values of all
// of them, so that it can replace any other.
func TestStages(t *testing.T) {
	services := []string{"fault-quarantine", "node-drainer", "fault-remediation", "janitor"}
	stages := func(name string) string { return "--values=" + filepath.Join(chartDir, "stages", name+".yaml") }
	for acting, stage := range map[int]string{0: "watch", 1: "quarantine", 2: "drain", 4: "repair"} {
		pods := workloads(t, rendered(t, file("store"), "--set=cspPluginKwok.enabled=true", stages("repair"), stages(stage)))
		for i, service := range services {
			pod, there := pods[service]
			acts := there && !slices.Contains(pod.Spec.Containers[0].Args, "--dry-run=true")
			if acts != (i < acting) {
				t.Errorf("%s: %s acts: %v", stage, service, acts)
			}
		}
	}
}
