package snapshot

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// healthChecks are NodeHealthChecks, ours or those of another operator.
var healthChecks = schema.GroupVersionResource{Group: "remediation.medik8s.io", Version: "v1alpha1", Resource: "nodehealthchecks"}

// checks are the NodeHealthChecks that want accepts.
func checks(ctx context.Context, cluster *kube.Client, want func(*metav1.LabelSelector, timeline.Check) bool) ([]timeline.Check, error) {
	var out []timeline.Check
	err := eachOf(ctx, cluster, healthChecks, func(x *unstructured.Unstructured) {
		selector, c, err := check(*x)
		if err != nil || want(selector, c) { // whether a check that can not be read selects a node, nobody knows
			out = append(out, c)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// served reports whether the API server knows a kind: it refuses what the caller may not
// list, known or not.
func served(cluster *kube.Client, kind schema.GroupVersionResource) bool {
	list, err := cluster.Clientset.Discovery().ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource })
}

// every check is wanted.
func every(*metav1.LabelSelector, timeline.Check) bool { return true }

// ofNodeChecks wants those that select a node with these labels, or have it in hand.
func ofNodeChecks(name string, node *timeline.Node) func(*metav1.LabelSelector, timeline.Check) bool {
	return func(s *metav1.LabelSelector, c timeline.Check) bool {
		if slices.ContainsFunc(c.Patients, func(p timeline.MonitoredNode) bool { return p.Node == name }) {
			return true
		}
		selector, err := metav1.LabelSelectorAsSelector(s)
		return err == nil && node != nil && selector.Matches(labels.Set(node.Labels))
	}
}

// check returns what matters of a NodeHealthCheck. With an error, the check is
// Unreadable; it hides no other check.
func check(x unstructured.Unstructured) (*metav1.LabelSelector, timeline.Check, error) {
	var seen struct {
		Spec struct {
			Selector metav1.LabelSelector `json:"selector"`
		} `json:"spec"`
		Status struct {
			Phase          string       `json:"phase"`
			Reason         string       `json:"reason"`
			Storm          bool         `json:"stormRecoveryActive"`
			StormStart     *metav1.Time `json:"stormRecoveryStartTime"`
			UnhealthyNodes []struct {
				Name         string `json:"name"`
				Remediations []struct {
					Resource struct{ Kind, Name string } `json:"resource"`
					Started  metav1.Time                 `json:"started"`
					TimedOut metav1.Time                 `json:"timedOut"`
				} `json:"remediations"`
				Recovered metav1.Time `json:"conditionsHealthyTimestamp"`
				Waiting   string      `json:"waiting"`
			} `json:"unhealthyNodes"`
		} `json:"status"`
	}
	text, err := x.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &seen)
	}
	if err != nil {
		return nil, timeline.Check{Name: x.GetName(), Phase: timeline.Unreadable, Reason: err.Error()}, err
	}
	c := timeline.Check{Name: x.GetName(), Phase: seen.Status.Phase, Reason: seen.Status.Reason}
	if seen.Status.Storm && seen.Status.StormStart != nil {
		c.Storm = seen.Status.StormStart.UTC()
	}
	for _, u := range seen.Status.UnhealthyNodes {
		p := timeline.MonitoredNode{Node: u.Name, Recovered: u.Recovered.UTC(), Waiting: u.Waiting}
		for _, r := range u.Remediations {
			p.Tries = append(p.Tries, timeline.Try{Kind: r.Resource.Kind, Name: r.Resource.Name, Began: r.Started.UTC(), Abandoned: r.TimedOut.UTC()})
		}
		c.Patients = append(c.Patients, p)
	}
	return &seen.Spec.Selector, c, nil
}
