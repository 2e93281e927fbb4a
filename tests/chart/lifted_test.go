package chart

import (
	"strings"
	"testing"
)

// TestUncordonedByAnnotation: the policy that writes the annotation is installed where the API
// server serves its kind, or where the values request it.
func TestUncordonedByAnnotation(t *testing.T) {
	const v1, beta = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", "--api-versions=admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
	for name, tt := range map[string]struct {
		with []string
		want string // its apiVersion
	}{
		"not served":            {nil, ""},
		"served":                {[]string{v1}, "v1"},
		"served as beta":        {[]string{beta}, "v1beta1"},
		"served as both":        {[]string{v1, beta}, "v1"},
		"asked for":             {[]string{"--set=admission.uncordonedBy=true"}, "v1"},
		"not wanted":            {[]string{v1, "--set=admission.uncordonedBy=false"}, ""},
		"no policies for Nodes": {[]string{v1, "--set=admission.nodes=false"}, ""},
		"no fault-quarantine":   {[]string{v1, "--set=faultQuarantine.enabled=false"}, ""},
	} {
		var got []string
		release := false
		for _, o := range rendered(t, append([]string{file("store"), "--namespace=gpu-health"}, tt.with...)...) {
			if strings.HasPrefix(o.GetKind(), "MutatingAdmissionPolicy") {
				got = append(got, o.GetAPIVersion())
			}
			release = release || o.GetName() == "nvsentinel-release"
		}
		want := ""
		if tt.want != "" {
			want = strings.Repeat(" admissionregistration.k8s.io/"+tt.want, 2)[1:]
		}
		if strings.Join(got, " ") != want || release != (name != "no policies for Nodes" && name != "no fault-quarantine") {
			t.Errorf("%s: %q, want %q; the policy of a release is there: %t", name, got, want, release)
		}
	}
}
