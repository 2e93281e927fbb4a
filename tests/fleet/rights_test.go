package fleet

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestRefused: an API server that has not read its roles yet refuses what they grant;
// everything else that it refuses is a missing right or a policy's no.
func TestRefused(t *testing.T) {
	r := &Rights{granted: map[right][]string{}, refused: map[refusal]bool{}}
	r.grant("drainer", "", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"watch", "patch"}}})
	r.grant("drainer", "nvsentinel", []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"ours"}, Verbs: []string{"get"}}})
	for _, no := range []struct {
		what string
		refusal
		reported bool
	}{
		{"granted everywhere", refusal{right{"drainer", "", "", "nodes", "watch"}, "gpu-0", `User "drainer" cannot watch resource "nodes"`}, false},
		{"granted by name", refusal{right{"drainer", "nvsentinel", "coordination.k8s.io", "leases", "get"}, "ours", `User "drainer" cannot get resource "leases"`}, false},
		{"another name", refusal{right{"drainer", "nvsentinel", "coordination.k8s.io", "leases", "get"}, "theirs", `User "drainer" cannot get resource "leases"`}, true},
		{"another namespace", refusal{right{"drainer", "default", "coordination.k8s.io", "leases", "get"}, "ours", `User "drainer" cannot get resource "leases"`}, true},
		{"a policy", refusal{right{"drainer", "", "", "nodes", "patch"}, "gpu-0", "ValidatingAdmissionPolicy 'nodes' denied request"}, true},
		{"another verb", refusal{right{"drainer", "", "", "nodes", "delete"}, "gpu-0", `User "drainer" cannot delete resource "nodes"`}, true},
	} {
		r.refused = map[refusal]bool{no.refusal: true}
		if reported := slices.ContainsFunc(r.Refused(), func(s string) bool { return strings.Contains(s, no.message) }); reported != no.reported {
			t.Errorf("%s: told %v, want %v", no.what, reported, no.reported)
		}
	}
}
