package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryImageIsMade: an image of the suite that the chart names is one that make
// images knows, whatever the values.
func TestEveryImageIsMade(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(root, "hack/tools/images/images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+) `).FindAllStringSubmatch(string(list), -1) {
		made[m[1]] = true
	}
	var flags [][]string
	for _, name := range values {
		flags = append(flags, []string{file(name)})
	}
	for _, provider := range []string{"aws", "azure", "gcp", "oci"} {
		flags = append(flags, []string{file("clouds"), "--set=cspHealthMonitor.provider=" + provider})
	}
	named, ours := map[string]bool{}, regexp.MustCompile(`image: "?registry.example.com/ours/([a-z-]+)[:@]`)
	for _, with := range flags {
		text, err := template(t, append(with, "--set=image.registry=registry.example.com,image.repository=ours")...)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ours.FindAllStringSubmatch(text, -1) {
			named[m[1]] = true
			if !made[m[1]] {
				t.Errorf("with %v the chart names the image %s, which hack/tools/images/images.txt does not have", with, m[1])
			}
		}
	}
	if len(named) < 9 {
		t.Errorf("the chart names only %v: too few to mean anything", named)
	}
}
