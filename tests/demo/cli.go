package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// runCommand runs the command line that operators use, as they do, shows its answer
// and checks that it names what must be in it.
func runCommand(ctx context.Context, f *fleet.Fleet, o Options, wanted []string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(o.Fleet.Bin, "nvsentinel"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.Cluster.AdminKubeconfig(), "NVSENTINEL_STORE="+f.DSN)
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(o.Out, "\n$ nvsentinel %s\n%s", strings.Join(args, " "), out)
	if err != nil {
		return fmt.Errorf("running nvsentinel %s: %w", strings.Join(args, " "), err)
	}
	for _, want := range wanted {
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("running nvsentinel %s: the output does not contain %q", strings.Join(args, " "), want)
		}
	}
	return nil
}

// explained asks why, and how the fleet stands: the chain must name the line,
// the rule, the object and the recovery, and no node may be left in trouble.
func (s *story) explained(ctx context.Context, o Options, line string) error {
	fault := s.last.fault
	chain := []string{
		s.name + ": in-service", line, fault.ID, s.last.recovery.ID, "the node is released",
		fmt.Sprintf("%s by rule %q", record.Matched, fault.Status.QuarantineVerdict.RuleSets[0]),
		"[" + s.last.repairs[0].GetKind() + "/" + s.last.repairs[0].GetName() + "]",
	}
	if err := runCommand(ctx, s.fleet, o, chain, "why", s.name); err != nil {
		return err
	}
	if o.PersistOnly {
		if err := runCommand(ctx, s.fleet, o, []string{"PERSIST_ONLY, stored only", watched + ": in-service"}, "why", watched); err != nil {
			return err
		}
	}
	err := runCommand(ctx, s.fleet, o, []string{
		fmt.Sprintf("in-service %d", o.Fleet.Nodes), "fault-quarantine", "node-drainer", "fault-remediation",
	}, "status")
	fmt.Fprintln(o.Out)
	return err
}
