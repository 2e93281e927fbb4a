package scale

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// aggregate gives the ClusterRoles that are made of others what these grant, as
// kube-controller-manager would, which does not run here.
func (s *site) aggregate(ctx context.Context) error {
	roles := s.client.RbacV1().ClusterRoles()
	all, err := roles.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the roles: %w", err)
	}
	for _, role := range all.Items {
		if role.AggregationRule == nil {
			continue
		}
		role.Rules = nil
		for _, part := range all.Items {
			if part.Name != role.Name && slices.ContainsFunc(role.AggregationRule.ClusterRoleSelectors, matches(part)) {
				role.Rules = append(role.Rules, part.Rules...)
			}
		}
		if _, err := roles.Update(ctx, &role, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("aggregating role %s: %w", role.Name, err)
		}
	}
	return nil
}

func matches(role rbacv1.ClusterRole) func(metav1.LabelSelector) bool {
	return func(s metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		return err == nil && selector.Matches(labels.Set(role.Labels))
	}
}
