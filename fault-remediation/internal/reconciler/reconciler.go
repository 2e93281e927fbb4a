// Package reconciler carries out the repairs of nodes. Handle observes, decides, creates
// repair objects, stamps records, and rests with the Node marked, each in the file of
// that name; facts.go has what one look leaves for the next.
package reconciler

import (
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/ownwrite"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Reconciler repairs nodes, one step at a time.
type Reconciler struct {
	Records *consumer.Records
	Cluster *kube.Client
	Repairs action.Policy
	Policy  decision.Policy
	// Cached is the Node that a cache has, nil where it has none; nil reads all Nodes from
	// the API server. See decision.FirstOfSession.
	Cached func(name string) *corev1.Node
	// Eviction is the drainer's policy: which pods had to go.
	Eviction eviction.Policy
	// DryRun decides and logs, and writes nothing.
	DryRun  bool
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *Metrics
	// Brake is the emergency brake; nil is never on.
	Brake *brake.Brake
	// Events writes those about Nodes; nil writes none.
	Events *eventrecorder.Recorder
	// Leases are those that remediators of nodes share; nil takes none.
	Leases *nodelease.Claims

	objects ownwrite.Filter // of repair objects, by namespace and name
	// kubelets are those that may be dead although their Nodes say Ready.
	kubelets kubelet.Watches
	// taken is when this reconciler took the lease of a node last, by its name: for half of
	// the lease's life. What is not known here, after a start, is taken once more.
	taken sync.Map
}
