package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRightsOfTheLabeler: it may read the pods of the cluster, or those of the operators'
// namespaces alone; and it reads those of the latter in both cases.
func TestRightsOfTheLabeler(t *testing.T) {
	own := []string{
		"cluster: list,watch,patch nodes", release + ": create leases.coordination.k8s.io", release + ": get,update leases.coordination.k8s.io labeler-labels",
	}
	const pods = ": list,watch pods"
	for name, tc := range map[string]struct {
		with, want []string
		reads      string
	}{
		"off":     {nil, nil, ""},
		"default": {[]string{"--set=labeler.enabled=true"}, append(slices.Clone(own), "cluster"+pods), "gpu-operator,nvidia-gpu-operator,kube-system"},
		"bounded": {
			[]string{"--set=labeler.enabled=true,labeler.namespacedRBAC=true,labeler.podNamespaces={gpus,kube-system}"},
			append(slices.Clone(own), "gpus"+pods, "kube-system"+pods), "gpus,kube-system",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, append([]string{file("store")}, tc.with...)...)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, rights(t, objects, "labeler")); diff != "" {
				t.Errorf("its rights (-want +got):\n%s", diff)
			}
			if d, there := deployments(t, objects)["labeler"]; there != (tc.reads != "") ||
				there && !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--pod-namespaces="+tc.reads) {
				t.Errorf("it does not read the pods of %q: %v", tc.reads, d.Spec.Template.Spec.Containers)
			}
		})
	}
}

// TestProofsOfMachines: the settings that prove a machine's identity reach the plugin; without
// them it gets none and uses its own default.
func TestProofsOfMachines(t *testing.T) {
	all := deployments(t, rendered(t, file("clouds")))
	for plugin, want := range map[string][]string{
		"csp-plugin-azure": {"--node-name-from=computer-name", "--cluster-tag=kubernetes-cluster=prod-1"},
		"csp-plugin-oci":   {"--node-name-from=tag:node-name,private-ip"},
		"csp-plugin-gcp":   nil,
	} {
		var got []string
		for _, arg := range all[plugin].Spec.Template.Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "--node-name-from=") || strings.HasPrefix(arg, "--cluster-tag=") {
				got = append(got, arg)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", plugin, diff)
		}
	}
}
