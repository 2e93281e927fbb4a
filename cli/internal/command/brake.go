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
		Short: "Pull the emergency brake, or let it go: no cordons, evictions, repair objects, signals",
		Long: `Pull the emergency brake of the installation, or let it go. It writes the ConfigMap
` + brake.Name + `, in your name and by your own rights (get, create and patch of
configmaps in the installation's namespace); every replica of every service follows
within seconds, and across restarts. While it is on nothing is cordoned, evicted,
repaired or signalled; recoveries and releases go on. Needs no store. status shows how
it stands.
` + exitCodes,
		Example:   "  nvsentinel brake on --reason \"wrong firmware catalogue\"\n  nvsentinel brake off --reason \"catalogue mended\"",
		ValidArgs: []string{"on", "off"},
		Args:      cobra.MatchAll(exactly(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			*code = ExitWhole
			return o.brake(c.Context(), brake.State{On: args[0] == "on", Reason: reason})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for everybody who asks")
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
		fmt.Fprintf(o.program.Out, "already so: %s\n", now)
		return nil
	}
	if want.By, err = userName(ctx, cluster); err != nil {
		return coded{err, ExitFailed}
	}
	if err := brake.Set(ctx, cluster.Clientset, o.namespace, want); err != nil {
		return coded{err, ExitFailed}
	}
	fmt.Fprintf(o.program.Out, "%s; every service of namespace %s follows within seconds\n", want, o.namespace)
	return nil
}
