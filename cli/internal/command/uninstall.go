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
		Short: "List what the suite has left in the cluster after helm uninstall, and remove it with --yes",
		Long: `List what the suite has left in the cluster after helm uninstall, under its kind, and
what becomes of each thing: removed, or left with the reason. Nothing is changed without
--yes. What is not surely the suite's is left, as are nodes in quarantine, repairs that
have not ended, and definitions. Each write holds only while the thing is as it was
listed; run it again to go on. Needs no store.
` + exitCodes,
		Example: "  nvsentinel uninstall\n  nvsentinel uninstall --yes\n  nvsentinel uninstall --release-nodes --crds --yes",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			*code, err = o.uninstall(c.Context(), asked, yes && !dry)
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&dry, "dry-run", false, "list only, which is the default")
	f.BoolVar(&yes, "yes", false, "remove what is listed")
	f.BoolVar(&asked.ReleaseNodes, "release-nodes", false, "take nodes out of quarantine, repaired or not, and give up repairs that have not ended")
	f.BoolVar(&asked.Definitions, "crds", false, "remove the definitions, and with them all objects of their kinds, people's too")
	c.MarkFlagsMutuallyExclusive("yes", "dry-run")
	return c
}

func (o *options) uninstall(ctx context.Context, asked removal.Options, yes bool) (int, error) {
	cluster, err := o.writer()
	if err != nil {
		return 0, err
	}
	s := sweep.Sweep{Cluster: cluster, Namespace: o.namespace, Clock: o.program.Clock, Within: o.within}
	facts, err := s.Look(ctx)
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
	case len(plan.Unread) > 0, yes && !plan.Whole():
		return ExitPartial, nil
	}
	return ExitWhole, nil
}

// refuse is why nothing is removed.
func refuse(p removal.Plan) error {
	switch {
	case len(p.Running) > 0:
		return fmt.Errorf("nothing was removed: services of the suite run and would write it again (%s); first: helm uninstall <release> -n %s, and wait for the pods to end",
			strings.Join(p.Running, ", "), p.Namespace)
	case len(p.Unread) > 0:
		return fmt.Errorf("nothing was removed: it is decided from the whole, and not everything could be read (%s)", strings.Join(p.Unread, "; "))
	}
	return nil
}
