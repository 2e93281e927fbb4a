package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func releaseCommand(o *options, code *int) *cobra.Command {
	var reason string
	var patience time.Duration
	c := &cobra.Command{
		Use:   "release <node>",
		Short: "Release a node from quarantine, in your name: its open faults are over",
		Long: `Release a node from quarantine: its open faults end, drain and repair stop, and every
mark of the session is removed, also while a repair object is active. It writes an
annotation with your user name on the Node, by your own rights (patch nodes), which
fault-quarantine follows and removes. A service account is refused. Needs no store.
It waits until the session has ended.
` + exitCodes,
		Example: "  nvsentinel release gpu-1 --reason \"GPU 3 replaced, ticket 4711\"",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			*code, err = o.release(c.Context(), args[0], reason, patience)
			return err
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the Event about it")
	c.Flags().DurationVar(&patience, "wait", time.Minute, "how long to wait for the end of the session")
	return c
}

func (o *options) release(ctx context.Context, name, reason string, patience time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rc, err := o.kube()
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	cluster, err := kube.ForConfig(rc, kube.Config{}, o.agent()) // one that may write
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	node, err := kube.ReadNode(ctx, cluster.Clientset, name)
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	session := nodemark.Session(node)
	if session == "" {
		return 0, coded{fmt.Errorf("node %s is not in quarantine: it bears no session; nvsentinel why %s says what keeps it", name, name), ExitFailed}
	}
	me, err := userName(ctx, cluster)
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	key, value := nodemark.Request{Session: session, By: me, Reason: reason}.Annotation()
	if err := annotate(ctx, cluster, name, key, &value); err != nil {
		return 0, coded{fmt.Errorf("asking for the release of node %s: %w", name, err), ExitFailed}
	}
	fmt.Fprintf(o.program.Out, "asked for in the name of %s\n", me)
	err = until(ctx, func(ctx context.Context) (bool, error) {
		node, err := kube.ReadNode(ctx, cluster.Clientset, name)
		if errors.Is(err, kube.ErrGone) {
			return true, nil
		}
		return err == nil && nodemark.Session(node) != session, err
	})
	if err != nil {
		return ExitPartial, coded{fmt.Errorf("session %s has not ended yet; the annotation %s stays, and is followed when fault-quarantine is there: %w", session, key, err), ExitPartial}
	}
	fmt.Fprintf(o.program.Out, "session %s has ended\n", session)
	return ExitWhole, nil
}
