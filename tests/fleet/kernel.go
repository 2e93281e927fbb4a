package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nvidia/nvsentinel/internal/kmsgtest"
)

// kernel is that of a node's machine: its log, and the boot that runs. Its folder is
// machines/<node>/kernel.
type kernel struct {
	log  *kmsgtest.Device
	boot string
}

func (f *Fleet) kernelFolder(node string) string { return filepath.Join(f.machine(node), "kernel") }

// bootKernel boots a machine for the first time.
func (f *Fleet) bootKernel(node, boot string) error {
	log, err := kmsgtest.Open(f.kernelFolder(node))
	if err != nil {
		return err
	}
	k := &kernel{log: log}
	f.mu.Lock()
	f.kernels[node] = k
	f.mu.Unlock()
	return f.begin(node, k, boot)
}

// begin begins a boot. Its log is there before its id, so that no line of the boot
// before is read as one of the new boot.
func (f *Fleet) begin(node string, k *kernel, boot string) error {
	k.log.Reboot()
	if err := k.log.Print("Linux version 6.8.0 (boot " + boot + ")"); err != nil {
		return err
	}
	path := filepath.Join(f.kernelFolder(node), "boot_id")
	if err := os.WriteFile(path+".new", []byte(boot+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k.boot = boot
	return nil
}

// endKernel ends the kernel of a machine, if there is one.
func (f *Fleet) endKernel(node string) error {
	f.mu.Lock()
	k := f.kernels[node]
	delete(f.kernels, node)
	f.mu.Unlock()
	if k == nil {
		return nil
	}
	return k.log.Close()
}

func (f *Fleet) kernel(node string) (*kernel, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.kernels[node]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("node %s has no machine with a kernel", node)
}

// running is which boot of each machine runs.
func (f *Fleet) running() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	boots := map[string]string{}
	for node, k := range f.kernels {
		boots[node] = k.boot
	}
	return boots
}

// rebootAgents simulates what a reboot does to a machine: after the power cycle its kernel
// starts again, and its processes die with SIGKILL and restart.
func (f *Fleet) rebootAgents(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		boots := f.running()
		for _, node := range slices.Sorted(maps.Keys(boots)) {
			boot, err := f.BootID(node)
			if err != nil || boot == "" || boot == boots[node] {
				continue
			}
			k, err := f.kernel(node)
			if err != nil {
				continue // the machine was replaced at this moment
			}
			if err := f.begin(node, k, boot); err != nil {
				continue // the machine is being replaced, or this is tried again
			}
			f.rebooted(node)
			for _, service := range []string{Monitor, GPUMonitor, Connector} {
				if s := f.Service(service + "@" + node); s != nil {
					s.Kill()
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// BootID is the boot id that the power of a node's machine was cycled to. Its kernel
// follows.
func (f *Fleet) BootID(node string) (string, error) {
	b, err := os.ReadFile(filepath.Join(f.machine(node), "boot_id"))
	return strings.TrimSpace(string(b)), err
}

// pids gives each XID line its own process id.
var pids atomic.Int64

// WriteXID has the kernel of a node's machine report an XID, and returns what it wrote.
func (f *Fleet) WriteXID(node string, gpu, xid int) (string, error) {
	pci := strings.TrimSuffix(PCI(gpu), ".0")
	line := fmt.Sprintf("NVRM: Xid (PCI:%s): %d, pid=%d, name=python3, GPU has fallen off the bus.", pci, xid, 1000+pids.Add(1))
	return line, f.WriteLine(node, line)
}

// WriteLine has the kernel of a node's machine write a line.
func (f *Fleet) WriteLine(node, line string) error {
	k, err := f.kernel(node)
	if err != nil {
		return err
	}
	return k.log.Print(line)
}
