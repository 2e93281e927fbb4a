package chart

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/tests/e2e"
)

// TestPrivileges: docs/reference/permissions.md lists the workloads that run as root or may more than
// a user, all of them and no other, in every way that the values know.
func TestPrivileges(t *testing.T) {
	found := map[string]bool{}
	see := func(args ...string) {
		for name, pod := range workloads(t, rendered(t, args...)) {
			for _, c := range pod.Spec.Containers {
				if c.SecurityContext == nil {
					continue // janitor.sidecars, which are the values'
				}
				if !*c.SecurityContext.ReadOnlyRootFilesystem {
					t.Errorf("%s can write into its image", name)
				}
				if line := mayMore(pod.Spec.SecurityContext, c.SecurityContext); line != "" {
					found[name+": "+line] = true
				}
			}
		}
	}
	for _, name := range values {
		see(file(name))
	}
	for _, source := range []string{"kmsg", "journal"} {
		see(file("store"), "--set=syslogHealthMonitor.source="+source)
	}
	see(file("store"), "--set=gpuHealthMonitor.enabled=true,gpuHealthMonitor.dcgm.mode=embedded")
	listed, err := e2e.Privileged(root)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	if diff := cmp.Diff(listed, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("docs/reference/permissions.md (-), the chart (+):\n%s", diff)
	}
}

// mayMore describes what a container may do beyond an ordinary user, in the words of the page;
// it is empty if that is nothing.
func mayMore(pod *corev1.PodSecurityContext, c *corev1.SecurityContext) string {
	user := "root"
	if pod.RunAsUser != nil && *pod.RunAsUser != 0 {
		user = "user"
	}
	capabilities := "none"
	switch {
	case c.Privileged != nil && *c.Privileged:
		capabilities = "all (privileged)"
	case !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}):
		capabilities = "the runtime's"
	case len(c.Capabilities.Add) > 0:
		capabilities = string(c.Capabilities.Add[0])
	}
	if user == "user" && capabilities == "none" {
		return ""
	}
	return user + ", " + capabilities
}
