package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestPrivileges: docs/security.md lists the workloads that run as root or may more than
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
	for _, source := range []string{"kmsg", "journal", "file"} {
		see(file("store"), "--set=syslogHealthMonitor.logKernelOnly=true,syslogHealthMonitor.source="+source)
	}
	see(file("store"), "--set=gpuHealthMonitor.enabled=true,gpuHealthMonitor.dcgm.mode=embedded")
	page, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## What runs as root")
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `") {
			listed = append(listed, strings.Trim(strings.TrimSpace(cells[1]), "`")+": "+strings.TrimSpace(cells[2])+", "+strings.TrimSpace(cells[3]))
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(listed, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("docs/security.md (-), the chart (+):\n%s", diff)
	}
}

// mayMore says what a container may do beyond a user's, as the page writes it; empty of
// one that may nothing.
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
