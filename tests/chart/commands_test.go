package chart

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsAreOfTheirImages: a command of a container is a program that its image has
// besides the first one.
func TestCommandsAreOfTheirImages(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(root, "hack/tools/images/images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	further := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+) +(\./\S+)`).FindAllStringSubmatch(string(list), -1) {
		for _, program := range strings.Split(m[2], ",")[1:] {
			further[m[1]+" /"+path.Base(program)] = true
		}
	}
	commands := 0
	for _, provider := range []string{"aws", "azure", "gcp", "oci"} {
		for workload, pod := range workloads(t, rendered(t, file("all"), "--set=image.registry=registry.example.com,image.repository=ours,image.tag=v1,cspHealthMonitor.provider="+provider)) {
			c := pod.Spec.Containers[0]
			name, ours := strings.CutPrefix(strings.TrimSuffix(c.Image, ":v1"), "registry.example.com/ours/")
			if !ours || len(c.Command) == 0 {
				continue
			}
			commands++
			if !further[name+" "+c.Command[0]] {
				t.Errorf("%s runs %v of the image %s, which has %v", workload, c.Command, name, further)
			}
		}
	}
	if commands < 6 {
		t.Errorf("only %d commands", commands)
	}
}
