package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nvidia/nvsentinel/internal/pause"
)

func pauseCommand(o *options, code *int) *cobra.Command {
	return o.switching(true, code, &cobra.Command{
		Use:   "pause",
		Short: "Pause all actions: no cordons, evictions, maintenance objects or signals",
		Long: `Activate the emergency stop of the installation. The command writes the ConfigMap
` + pause.Name + ` with your user name and your permissions (get, create and patch of
configmaps in the namespace of the installation). Every replica of every service observes it
within seconds, also after a restart. While it is active, no service cordons, evicts,
remediates or signals. Recoveries and releases continue. The command needs no store.
Run nvsentinel status to see the state, and nvsentinel resume to end it.
` + exitCodes,
		Example: "  nvsentinel pause --reason \"wrong firmware catalog\"",
	})
}

func resumeCommand(o *options, code *int) *cobra.Command {
	return o.switching(false, code, &cobra.Command{
		Use:   "resume",
		Short: "Resume all actions after a pause",
		Long: `Deactivate the emergency stop of the installation. The command writes the same ConfigMap as
nvsentinel pause, with your user name and your permissions. Every service resumes within seconds.
` + exitCodes,
		Example: "  nvsentinel resume --reason \"firmware catalog fixed\"",
	})
}

// switching has a command switch the emergency stop on or off, for a reason.
func (o *options) switching(on bool, code *int, c *cobra.Command) *cobra.Command {
	var reason string
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		*code = ExitComplete
		return o.setPause(c.Context(), pause.State{On: on, Reason: reason})
	}
	c.Flags().StringVar(&reason, "reason", "", "Reason that status shows to all users.")
	return c
}

// setPause switches, unless it is so already: who pulled first stays named.
func (o *options) setPause(ctx context.Context, want pause.State) error {
	ctx, cancel := context.WithTimeout(ctx, o.within)
	defer cancel()
	cluster, err := o.writer()
	if err != nil {
		return err
	}
	now, err := pause.Read(ctx, cluster.Clientset, o.namespace)
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
	if err := pause.Set(ctx, cluster.Clientset, o.namespace, want); err != nil {
		return coded{err, ExitFailed}
	}
	fmt.Fprintf(o.program.Out, "%s, and every service of namespace %s follows within seconds\n", want, o.namespace)
	return nil
}
