package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nvidia/nvsentinel/internal/brake"
)

func brakeCommand(o *options, code *int) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "brake on|off",
		Short: "Pause all actions: no cordons, evictions, maintenance objects or signals",
		Long: `Activate the emergency stop of the installation. The command writes the ConfigMap
` + brake.Name + ` with your user name and your permissions (get, create and patch of
configmaps in the namespace of the installation). Every replica of every service observes it
within seconds, also after a restart. While it is active, no service cordons, evicts,
remediates or signals. Recoveries and releases continue. The command needs no store.
Run nvsentinel status to see the state, and nvsentinel resume to end it.
` + exitCodes,
		Example:   "  nvsentinel brake on --reason \"wrong firmware catalogue\"\n  nvsentinel brake off --reason \"catalogue mended\"",
		ValidArgs: []string{"on", "off"},
		Args:      cobra.MatchAll(exactly(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			*code = ExitWhole
			return o.brake(c.Context(), brake.State{On: args[0] == "on", Reason: reason})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "Reason that status shows to all users.")
	return c
}

// brake switches, unless it is so already: who pulled first stays named.
func (o *options) brake(ctx context.Context, want brake.State) error {
	ctx, cancel := context.WithTimeout(ctx, o.within)
	defer cancel()
	cluster, err := o.writer()
	if err != nil {
		return err
	}
	now, err := brake.Read(ctx, cluster.Clientset, o.namespace)
	if err != nil {
		return coded{err, ExitFailed}
	}
	if now.On == want.On {
		fmt.Fprintf(o.program.Out, "no change: %s\n", now)
		return nil
	}
	if want.By, err = userName(ctx, cluster); err != nil {
		return coded{err, ExitFailed}
	}
	if err := brake.Set(ctx, cluster.Clientset, o.namespace, want); err != nil {
		return coded{err, ExitFailed}
	}
	fmt.Fprintf(o.program.Out, "%s, and every service of namespace %s follows within seconds\n", want, o.namespace)
	return nil
}
