package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// right is one verb on one resource that RBAC gives an account; in all namespaces
// if it names none.
type right struct{ account, namespace, group, resource, verb string }

// String is how the tables of tests name a right.
func (r right) String() string {
	resource := r.resource
	if r.group != "" {
		resource += "." + r.group
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", r.account, r.verb, resource, r.namespace))
}

// Rights compares what RBAC gives the suite's accounts with what the API server's
// audit saw them do, over any number of clusters that are audited.
type Rights struct {
	granted map[right][]string // the names it is bound to; "" is any
	used    map[right]bool
	refused map[refusal]bool
}

// refusal is a request that was answered with no, and the API server's words.
type refusal struct {
	right
	name, message string
}

// Add takes in what the accounts of a cluster did so far.
func (r *Rights) Add(ctx context.Context, c *localcluster.Cluster) error {
	if r.granted == nil {
		r.granted, r.used, r.refused = map[right][]string{}, map[right]bool{}, map[refusal]bool{}
	}
	if err := r.grants(ctx, c); err != nil {
		return err
	}
	requests, err := c.Requests()
	for _, q := range requests {
		did := right{q.Account, q.Namespace, q.Group, q.Resource, q.Verb}
		if q.Code == 403 || q.Code == 422 && strings.Contains(q.Message, "ValidatingAdmissionPolicy") {
			r.refused[refusal{did, q.Name, q.Message}] = true
			continue
		}
		r.used[did] = true
		did.namespace = ""
		r.used[did] = true
	}
	return err
}

// grants reads what the accounts may do from the cluster's own roles.
func (r *Rights) grants(ctx context.Context, c *localcluster.Cluster) error {
	rbac := c.Client().RbacV1()
	wide, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, b := range wide.Items {
		for _, account := range accountsOf(b.Subjects) {
			role, err := rbac.ClusterRoles().Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			r.grant(account, "", role.Rules)
		}
	}
	narrow, err := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, b := range narrow.Items {
		for _, account := range accountsOf(b.Subjects) {
			role, err := rbac.Roles(b.Namespace).Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			r.grant(account, b.Namespace, role.Rules)
		}
	}
	return nil
}

func accountsOf(subjects []rbacv1.Subject) []string {
	var out []string
	for _, s := range subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "nvsentinel" {
			out = append(out, s.Name)
		}
	}
	return out
}

func (r *Rights) grant(account, namespace string, rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					r.grantOne(right{account, namespace, group, resource, verb}, rule.ResourceNames)
				}
			}
		}
	}
}

func (r *Rights) grantOne(granted right, names []string) {
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		if !slices.Contains(r.granted[granted], name) {
			r.granted[granted] = append(r.granted[granted], name)
		}
	}
}

// Unused are the rights of these accounts that no request needed.
func (r *Rights) Unused(accounts ...string) []string {
	var out []string
	for _, g := range slices.Collect(maps.Keys(r.granted)) {
		if slices.Contains(accounts, g.account) && !r.used[g] {
			out = append(out, g.String())
		}
	}
	slices.Sort(out)
	return out
}

// Refused are the requests that a missing right or a policy refused. An API server
// that has just started refuses what its roles grant until it has read them all:
// such a refusal is no missing right.
func (r *Rights) Refused() []string {
	var out []string
	for no := range r.refused {
		if !r.warming(no) {
			out = append(out, no.String()+": "+no.message)
		}
	}
	slices.Sort(out)
	return out
}

// warming reports whether RBAC alone refused what the roles grant.
func (r *Rights) warming(no refusal) bool {
	wide := no.right
	wide.namespace = ""
	granted := slices.Concat(r.granted[no.right], r.granted[wide])
	return strings.Contains(no.message, " cannot "+no.verb+" resource ") &&
		(slices.Contains(granted, "") || slices.Contains(granted, no.name))
}
