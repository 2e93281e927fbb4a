package reconciler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// EventClaimOrphaned means that the Node named a maintenance object that does not exist, so its annotation was removed. Action:
// none.
const EventClaimOrphaned = "ClaimOrphaned"

// claimsEvery is how often claims are looked at.
const claimsEvery = time.Minute

// Claims takes the claims of repair objects that certainly do not exist off their Nodes: nothing
// else would, and a Node that is claimed is neither repaired nor completely released.
type Claims struct {
	Reconciler *Reconciler
	Nodes      listers.NodeLister
	// Objects reads the objects' metadata.
	Objects metadata.Interface
	// OrphanTimeout is how long a claim must have been seen without its object.
	OrphanTimeout time.Duration

	seen decision.Claims
}

// NewClaims looks at the claims of the Nodes of a cache.
func NewClaims(reconciler *Reconciler, nodes listers.NodeLister, patience time.Duration) (*Claims, error) {
	objects, err := metadata.NewForConfig(reconciler.Cluster.Config)
	if err != nil {
		return nil, fmt.Errorf("creating the metadata client: %w", err)
	}
	return &Claims{Reconciler: reconciler, Nodes: nodes, Objects: objects, OrphanTimeout: patience}, nil
}

// Task looks again and again. It enqueues nobody: a Node whose claim is gone does.
func (c *Claims) Task() consume.Task {
	return consume.Task{Name: "orphaned claims", Every: claimsEvery, Do: c.Poll}
}

// Poll looks once. What can not be read leaves every claim as it is.
func (c *Claims) Poll(ctx context.Context) error {
	claimed, err := c.claimed()
	if err != nil {
		return err
	}
	if len(claimed) == 0 {
		c.seen = decision.Claims{}
		return nil
	}
	exists, err := c.uids(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, node := range c.seen.Orphans(claimed, exists, c.Reconciler.Clock.Now(), c.OrphanTimeout) {
		problems = append(problems, c.drop(ctx, node, claimed[node]))
	}
	return errors.Join(problems...)
}

// claimed are the uids that claim Nodes, by the Node's name.
func (c *Claims) claimed() (map[string]string, error) {
	nodes, err := c.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	claimed := map[string]string{}
	for _, n := range nodes {
		if uid := nodemark.Read(n).Claim; uid != "" {
			claimed[n.Name] = uid
		}
	}
	return claimed, nil
}

// uids are those of all objects that may claim a Node: of the janitor's kinds
// and of those that repairs are made of. A kind that is not served has none.
func (c *Claims) uids(ctx context.Context) (map[string]bool, error) {
	kinds := map[schema.GroupVersionResource]bool{}
	for _, resource := range []string{"rebootnodes", "terminatenodes", "gpuresets"} {
		kinds[schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: resource}] = true
	}
	for _, a := range c.Reconciler.Repairs.All() {
		kinds[a.GVR()] = true
	}
	uids := map[string]bool{}
	for _, gvr := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) }) {
		for page := (metav1.ListOptions{Limit: 500}); ; {
			list, err := c.Objects.Resource(gvr).List(ctx, page)
			if kindMissing(err) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
			}
			for _, o := range list.Items {
				uids[string(o.UID)] = true
			}
			if page.Continue = list.Continue; page.Continue == "" {
				break
			}
		}
	}
	return uids, nil
}

// drop takes a claim off a Node that still bears it, and reports it.
func (c *Claims) drop(ctx context.Context, name, uid string) error {
	node, err := kube.ReadNode(ctx, c.Reconciler.Cluster.Clientset, name)
	if errors.Is(err, kube.ErrNodeDeleted) || (err == nil && nodemark.Read(node).Claim != uid) {
		return nil
	}
	if err != nil {
		return err
	}
	message := fmt.Sprintf("The maintenance object with uid %s that claims the Node has not existed for %s. Its claim is removed", uid, c.OrphanTimeout)
	c.Reconciler.Log.Warn("orphaned claim found", "node", name, "uid", uid, "dryRun", c.Reconciler.DryRun)
	if c.Reconciler.DryRun {
		return nil
	}
	c.Reconciler.warn(ctx, node, EventClaimOrphaned, message)
	_, err = kube.PatchNode(ctx, c.Reconciler.Cluster.Clientset, node, func(n *corev1.Node) { nodemark.SetClaim(n, "") })
	if errors.Is(err, kube.ErrConflict) || errors.Is(err, kube.ErrNodeDeleted) {
		return nil // the next pass decides again
	}
	if err == nil {
		c.Reconciler.Metrics.orphans.Inc()
	}
	return err
}
