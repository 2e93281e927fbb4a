package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvidia/nvsentinel/cli/internal/sweep"
	"github.com/nvidia/nvsentinel/cli/removal"
	"github.com/nvidia/nvsentinel/cli/timeline"
)

func uninstallCommand(o *options, code *int) *cobra.Command {
	var asked removal.Options
	var yes, dry bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "List the objects that remain in the cluster after helm uninstall, and remove them with --yes",
		Long: `List the objects that remain in the cluster after helm uninstall, by kind, each with its result:
removed, or kept with the reason. Without --yes, the command changes nothing. It keeps objects
that are not certainly managed by NVSentinel, nodes in quarantine, maintenance objects that have
not ended, and CRDs. A write fails if the object has changed since it was listed. Run the
command again to continue. It needs no store.
` + exitCodes,
		Example: "  nvsentinel uninstall\n  nvsentinel uninstall --yes\n  nvsentinel uninstall --release-nodes --crds --yes",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			*code, err = o.uninstall(c.Context(), asked, yes && !dry)
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&dry, "dry-run", false, "Only list the objects. This is the default.")
	f.BoolVar(&yes, "yes", false, "Remove the listed objects.")
	f.BoolVar(&asked.ReleaseNodes, "release-nodes", false, "Release nodes from quarantine, whether they are repaired or not, and abandon maintenance objects that have not ended.")
	f.BoolVar(&asked.Definitions, "crds", false, "Remove the CRDs and with them all objects of their kinds, including your own.")
	c.MarkFlagsMutuallyExclusive("yes", "dry-run")
	return c
}

func (o *options) uninstall(ctx context.Context, asked removal.Options, yes bool) (int, error) {
	cluster, err := o.writer()
	if err != nil {
		return 0, err
	}
	s := sweep.Sweep{Cluster: cluster, Namespace: o.namespace, Clock: o.program.Clock, Within: o.within}
	facts, err := s.Inspect(ctx)
	if err != nil {
		return 0, coded{err, ExitFailed}
	}
	plan := removal.Decide(facts, asked)
	var refused error
	if yes {
		refused = refuse(plan)
	}
	if yes && refused == nil {
		s.Do(ctx, facts, &plan)
	}
	if err := o.print(plan, func(w io.Writer, _ timeline.Style) error { return plan.Write(w) }); err != nil {
		return 0, err
	}
	switch {
	case refused != nil:
		return 0, coded{refused, ExitFailed}
	case len(plan.Unread) > 0, yes && !plan.Complete():
		return ExitPartial, nil
	}
	return ExitComplete, nil
}

// refuse is why nothing is removed.
func refuse(p removal.Plan) error {
	switch {
	case len(p.Running) > 0:
		return fmt.Errorf("nothing removed: services of NVSentinel are still running and would write the objects again (%s). First run helm uninstall <release> -n %s, and wait for the Pods to end",
			strings.Join(p.Running, ", "), p.Namespace)
	case len(p.Unread) > 0:
		return fmt.Errorf("nothing removed: the plan requires all objects, and some could not be read (%s)", strings.Join(p.Unread, "; "))
	}
	return nil
}
