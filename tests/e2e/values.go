package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// machineValues are what the played machine needs: its kernel's log and its boot id are
// files, and a recovery is believed after seconds.
const machineValues = `syslogHealthMonitor:
  source: file
  logKernelOnly: true
  logPath: ` + kernelLog + `
  extraArgs: [--boot-id-path=` + bootIDFile + `, --settle-time=10s]
cli: {enabled: true}
eviction: {userNamespaces: [{name: user, mode: Immediate}]}
`

// upgrade upgrades the release to a stage, with further arguments that hold for this time.
func (j *journey) upgrade(ctx context.Context, stage string, more ...string) error {
	if err := j.write("machine.yaml", machineValues); err != nil {
		return err
	}
	args := append(append([]string{"helm upgrade nvsentinel distros/helm/nvsentinel -n", namespace, "-f machine.yaml", "--wait --timeout 4m"}, j.values...), more...)
	if stage != "" {
		args = append(args, "-f distros/helm/nvsentinel/stages/"+stage+".yaml")
	}
	_, err := j.run(ctx, strings.Join(args, " "))
	return err
}

// kernelSays appends a line to the machine's kernel log.
func kernelSays(line string) error {
	if err := os.MkdirAll(filepath.Dir(kernelLog), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(kernelLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(line + "\n"); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// kernelBoots is what the kernel says first.
func kernelBoots(boot string) error {
	return kernelSays("[    0.000000] Linux version 6.8.0 (boot " + boot + ")")
}

// gpuFalls is what the kernel says when a GPU has fallen off the bus.
func gpuFalls(gpu int) error {
	return kernelSays(fmt.Sprintf("[%d.000000] NVRM: Xid (PCI:0000:%02x:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 1000+gpu, 0x10+gpu))
}
