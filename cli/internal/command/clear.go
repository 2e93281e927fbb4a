package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// clearing is one run of nvsentinel clear.
type clearing struct {
	options *options
	records store.Reader
	cluster *kube.Client
	node    string
	fault   record.Record
	reason  string
}

func clearCommand(o *options, code *int) *cobra.Command {
	var reason string
	var patience time.Duration
	c := &cobra.Command{
		Use:   "clear <node> <record>",
		Short: "Clear a fault manually that no monitor recovers",
		Long: `Clear a fault manually. The command writes an annotation with your user name on the Node, with
your permissions (patch nodes). The connector of role cluster converts it to a recovery of the
fault in the record, and every service processes this recovery. The command only reads the
store. It waits until the recovery is stored and the condition of the Node has changed, then
removes the annotation.
` + exitCodes,
		Example: "  nvsentinel clear gpu-1 01a2012f-5f2b-747d-a191-050c9f567ad1 --reason \"GPU 3 replaced, ticket 4711\"",
		Args:    exactly(2),
		RunE: func(c *cobra.Command, args []string) (err error) {
			*code, err = o.clear(c.Context(), args[0], args[1], reason, patience)
			return err
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "Reason, stored in the record.")
	c.Flags().DurationVar(&patience, "wait", time.Minute, "Time to wait for the recovery and the Node condition.")
	return c
}

func (o *options) clear(ctx context.Context, node, id, reason string, patience time.Duration) (int, error) {
	sources, done := o.open(ctx)
	defer done()
	if err := o.needs(ctx, "clearing", sources); err != nil {
		return 0, err
	}
	cluster, err := o.writer()
	if err != nil {
		return 0, err
	}
	c := clearing{options: o, records: sources.Records, cluster: cluster, node: node, reason: reason}
	if c.fault, err = c.find(ctx, id); err != nil {
		return 0, coded{err, ExitFailed}
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.run(bounded)
}

// find reads the record, or returns why it cannot be cleared.
func (c clearing) find(ctx context.Context, id string) (record.Record, error) {
	r, err := store.FindOf(ctx, c.records, c.node, id)
	if errors.Is(err, store.ErrNotFound) { // to report whose it is
		r, err = c.records.Get(ctx, id)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return r, fmt.Errorf("the store has no record %s, run nvsentinel why %s --all to list the records of the node", id, c.node)
	case err != nil:
		return r, fmt.Errorf("reading record %s: %w", id, err)
	case r.Event.NodeName != c.node:
		return r, fmt.Errorf("record %s is about node %s", id, r.Event.NodeName)
	case !r.IsFault():
		return r, fmt.Errorf("record %s is a recovery and not a fault", id)
	case !r.Acts():
		return r, fmt.Errorf("record %s is PERSIST_ONLY and leads to no action, so it cannot be cleared", id)
	}
	return r, nil
}

// run asks for the clearing, waits for it, and takes the annotation away.
func (c clearing) run(ctx context.Context) (int, error) {
	me, err := userName(ctx, c.cluster)
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	before, err := kube.ReadNode(ctx, c.cluster.Clientset, c.node)
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	key, value := nodemark.Clearing{Record: c.fault.ID, By: me, Reason: c.reason}.Annotation()
	if err := annotate(ctx, c.cluster, c.node, key, &value); err != nil {
		return 0, coded{fmt.Errorf("requesting the clearing on node %s: %w", c.node, err), ExitFailed}
	}
	fmt.Fprintf(c.options.program.Out, "requested as user %s\n", me)
	if err := until(ctx, c.stored); err != nil {
		return ExitPartial, coded{fmt.Errorf("waiting for the recovery: it is not stored yet, the annotation %s remains and the connector of role cluster processes it later (docs/reference/cli.md): %w", key, err), ExitPartial}
	}
	fmt.Fprintf(c.options.program.Out, "cleared by recovery %s\n", fault.ClearingID(c.fault.ID))
	if err := until(ctx, func(ctx context.Context) (bool, error) { return c.shown(ctx, before) }); err != nil {
		return ExitPartial, coded{fmt.Errorf("waiting for the condition %s of the Node: it has not changed yet, the annotation %s remains for its connector: %w", c.fault.Event.CheckName, key, err), ExitPartial}
	}
	if err := annotate(ctx, c.cluster, c.node, key, nil); err != nil {
		return ExitPartial, coded{fmt.Errorf("removing the annotation %s: %w", key, err), ExitPartial}
	}
	return ExitComplete, nil
}

func (c clearing) stored(ctx context.Context) (bool, error) {
	_, err := c.records.Get(ctx, fault.ClearingID(c.fault.ID))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// shown reports whether the condition of the fault's check is no longer what it was,
// or never reported a fault.
func (c clearing) shown(ctx context.Context, before *corev1.Node) (bool, error) {
	was := c.condition(before)
	if was.Status != corev1.ConditionTrue {
		return true, nil
	}
	node, err := kube.ReadNode(ctx, c.cluster.Clientset, c.node)
	if err != nil {
		return false, err
	}
	is := c.condition(node)
	return is.Status != was.Status || is.Message != was.Message, nil
}

func (c clearing) condition(node *corev1.Node) corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(x corev1.NodeCondition) bool { return string(x.Type) == c.fault.Event.CheckName })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return node.Status.Conditions[i]
}

func releaseCommand(o *options, code *int) *cobra.Command {
	var reason string
	var patience time.Duration
	c := &cobra.Command{
		Use:   "release <node>",
		Short: "Release a node from quarantine and close its open faults",
		Long: `Release a node from quarantine. Its open faults are closed, drain and remediation stop, and the
cordon, taints and labels of the quarantine session are removed, even while a maintenance
object is active. The command writes an annotation with your user name on the Node, with your
permissions (patch nodes). fault-quarantine processes and removes the annotation. Service
accounts are rejected. The command needs no store. It waits until the session has ended.
` + exitCodes,
		Example: "  nvsentinel release gpu-1 --reason \"GPU 3 replaced, ticket 4711\"",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			*code, err = o.release(c.Context(), args[0], reason, patience)
			return err
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "Reason, shown in the Event about the release.")
	c.Flags().DurationVar(&patience, "wait", time.Minute, "Time to wait for the end of the quarantine session.")
	return c
}

func (o *options) release(ctx context.Context, name, reason string, patience time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cluster, err := o.writer()
	if err != nil {
		return 0, err
	}
	node, err := kube.ReadNode(ctx, cluster.Clientset, name)
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	session := nodemark.Session(node)
	if session == "" {
		return 0, coded{fmt.Errorf("node %s has no quarantine session, run nvsentinel why %s to see its state", name, name), ExitFailed}
	}
	me, err := userName(ctx, cluster)
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	key, value := nodemark.Request{Session: session, By: me, Reason: reason}.Annotation()
	if err := annotate(ctx, cluster, name, key, &value); err != nil {
		return 0, coded{fmt.Errorf("requesting the release of node %s: %w", name, err), ExitFailed}
	}
	fmt.Fprintf(o.program.Out, "requested as user %s\n", me)
	err = until(ctx, func(ctx context.Context) (bool, error) {
		node, err := kube.ReadNode(ctx, cluster.Clientset, name)
		if errors.Is(err, kube.ErrNodeDeleted) {
			return true, nil
		}
		return err == nil && nodemark.Session(node) != session, err
	})
	if err != nil {
		return ExitPartial, coded{fmt.Errorf("waiting for the end of quarantine session %s: it has not ended yet, the annotation %s remains and fault-quarantine processes it later: %w", session, key, err), ExitPartial}
	}
	fmt.Fprintf(o.program.Out, "quarantine session %s has ended\n", session)
	return ExitComplete, nil
}

// What a person asks for by an annotation of a Node is written here.

// writer is a client that may write.
func (o *options) writer() (*kube.Client, error) {
	rc, err := o.kube()
	if err == nil {
		var cluster *kube.Client
		if cluster, err = kube.ForConfig(rc, kube.Config{}, o.agent()); err == nil {
			return cluster, nil
		}
	}
	return nil, coded{err, ExitFailed}
}

// userName is the caller's name, as the API server knows it.
func userName(ctx context.Context, cluster *kube.Client) (string, error) {
	me, err := cluster.Clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("reading your user name from the API server: %w", err)
	}
	return me.Status.UserInfo.Username, nil
}

// annotate writes one annotation of a Node; nil removes it.
func annotate(ctx context.Context, cluster *kube.Client, node, key string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = cluster.Clientset.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// clearPollInterval is how often is looked for what is waited for.
const clearPollInterval = 200 * time.Millisecond

// until polls until cond holds or ctx ends; its error includes the last problem.
func until(ctx context.Context, cond func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, clearPollInterval, true, func(ctx context.Context) (bool, error) {
		ok, err := cond(ctx)
		if err != nil {
			last = err
		}
		return ok, nil
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), last)
	}
	return nil
}
