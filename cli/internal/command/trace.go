package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/nvidia/nvsentinel/cli/timeline"
)

func traceCommand(o *options, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "trace <digest, object, record, run or node>",
		Short: "Tell which fault led to which result: the steps of repair chains, what each was made of and what it put out",
		Long: `Tell which fault led to which result. What runs of repair chains know is found by a
digest of an input or output (or its first 8 digits), an object (its name, kind/name,
namespace/name or uid), the id of a record, the name of a run, or a node. < is what a
step was made of, and from where; > is what it put out; * is what was asked for.
` + exitCodes,
		Example: "  nvsentinel trace sha256:9f8e7d6c5b4a\n  nvsentinel trace Job/gpu-1-4e3cb183\n  nvsentinel trace gpu-1 -o json",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			*code, err = o.trace(c.Context(), args[0])
			return err
		},
	}
}

func (o *options) trace(ctx context.Context, query string) (int, error) {
	sources, done := o.open(ctx)
	defer done()
	runs, source := sources.Runs(ctx)
	if err := nothing(source); err != nil {
		return 0, err
	}
	t := timeline.Follow(query, runs, source)
	if err := o.print(t, t.Write); err != nil {
		return 0, err
	}
	if len(t.Runs) == 0 {
		return ExitAbsent, nil
	}
	return ExitWhole, nil
}
