package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// machineValues are what the played machine needs: its kernel's log is another device
// and its boot id another file, and a recovery is believed after seconds.
const machineValues = `syslogHealthMonitor:
  extraVolumes: [{name: e2e, hostPath: {path: /var/log/e2e, type: Directory}}]
  extraVolumeMounts: [{name: e2e, mountPath: /var/log/e2e, readOnly: true}]
  extraArgs: [--log-path=` + kernelFolder + `/kmsg, --boot-id-path=` + bootIDFile + `, --settle-time=10s]
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

// gpuFalls writes what the kernel logs when a GPU has fallen off the bus.
func gpuFalls(gpu int) error {
	printk, err := os.OpenFile(filepath.Join(kernelFolder, "printk"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(printk, "NVRM: Xid (PCI:0000:%02x:00): 79, pid=%d, name=python3, GPU has fallen off the bus.\n", 0x10+gpu, 1000+gpu)
	return errors.Join(err, printk.Close())
}
