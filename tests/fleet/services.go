package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// control starts the services that run once.
func (f *Fleet) control(context.Context) error {
	// A socket is its own for good; a port may be another's when the plugin comes
	// back from a death.
	plugin := "unix://" + filepath.Join(f.Dir, "csp-plugin.sock")
	janitor := fmt.Sprintf("[global]\ncspPluginHost = %q\n", plugin)
	files := map[string]string{
		"janitor.toml":           janitor,
		"node-drainer.toml":      "[[userNamespaces]]\nname = \"*\"\nmode = \"Immediate\"\n",
		"fault-remediation.toml": "[[eviction.userNamespaces]]\nname = \"*\"\nmode = \"Immediate\"\n" + f.options.RemediationConfig,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	store := []string{"--store", f.DSN, "--single-host"}
	common := func(service string) []string {
		return []string{"--kubeconfig", f.kube[service], "--metrics-address", "127.0.0.1:0"}
	}
	config := func(service string) []string { return []string{"--config", filepath.Join(f.Dir, service+".toml")} }
	f.launch("csp-plugin-kwok", "", "csp-plugin-kwok", slices.Concat(common("csp-plugin-kwok"), []string{
		"--listen", plugin, "--reboot-time", f.options.RebootTime.String(), "--boot-id-dir", filepath.Join(f.Dir, "machines"),
		"--journal-file", filepath.Join(f.Dir, "journal.jsonl"),
	}, f.options.PluginFlags)...)
	f.launchAll("janitor", slices.Concat(common("janitor"), config("janitor"), f.options.JanitorFlags)...)
	f.launchAll("fault-remediation", slices.Concat(common("fault-remediation"), store, config("fault-remediation"), f.options.RemediationFlags)...)
	f.launchAll("node-drainer", slices.Concat(common("node-drainer"), store, config("node-drainer"))...)
	if len(f.options.Chains) > 0 {
		f.launchAll(RepairChain, common(RepairChain)...)
	}
	f.launchAll("fault-quarantine", slices.Concat(common("fault-quarantine"), store, []string{"--dry-run=false", "--default-budgets=false"}, f.options.QuarantineFlags)...)
	f.launchTogether()
	return nil
}

// nodes starts the connector and the monitor of every node.
func (f *Fleet) nodes(ctx context.Context) error {
	for _, name := range f.NodeNames() {
		if f.options.Runs != nil && !f.runs(Monitor, name) && !f.runs(Connector, name) {
			continue
		}
		if err := f.AddAgents(ctx, name); err != nil {
			return err
		}
	}
	watch, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.watchers.Go(func() { f.rebootAgents(watch) })
	return nil
}

// machine is the folder that plays a node's file system.
func (f *Fleet) machine(node string) string { return filepath.Join(f.Dir, "machines", node) }

// Socket is where a node's connector listens. Unix socket paths are short: 108
// bytes.
func (f *Fleet) Socket(node string) string { return filepath.Join(f.Dir, node+".sock") }

// AddAgents prepares a node's machine and starts its connector and monitor.
func (f *Fleet) AddAgents(ctx context.Context, node string) error {
	object, err := f.Cluster.Client().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	dir := f.machine(node)
	for _, sub := range []string{"state", "spool"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	boot := object.Status.NodeInfo.BootID
	files := map[string][]byte{"boot_id": []byte(boot + "\n"), "gpu_metadata.json": metadata(node)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	if err := f.bootKernel(node, boot); err != nil {
		return err
	}
	if f.runs(Connector, node) {
		if err := f.identify(ctx, node); err != nil {
			return err
		}
	}
	f.startAgents(node)
	return nil
}

func (f *Fleet) startAgents(node string) {
	dir := f.machine(node)
	socket := f.Socket(node)
	f.launch(Connector, node, "node-connector", f.connectorFlags(node)...)
	f.launch(Monitor, node, "syslog-health-monitor",
		"--node-name", node, "--source", "kmsg", "--log-path", filepath.Join(dir, "kernel", "kmsg"),
		"--boot-id-path", filepath.Join(dir, "kernel", "boot_id"), "--state-dir", filepath.Join(dir, "state"),
		"--metadata-path", filepath.Join(dir, "gpu_metadata.json"), "--platform-connector-socket", "unix://"+socket,
		"--settle-time", f.options.SettleTime.String(), "--processingStrategy", f.strategy(node), "--metrics-address", "127.0.0.1:0")
}

func (f *Fleet) strategy(node string) string {
	if f.options.StrategyOf == nil {
		return "PROCESS"
	}
	return f.options.StrategyOf(node)
}

// PCI is the address of a node's GPU.
func PCI(gpu int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10+gpu) }

// UUID is the id of a node's GPU.
func UUID(node string, gpu int) string {
	return fmt.Sprintf("GPU-%08x-0000-4000-8000-%012d", hash(node), gpu)
}

func hash(s string) uint32 {
	h := uint32(2166136261)
	for _, c := range []byte(s) {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

func metadata(node string) []byte {
	type gpu struct {
		ID     int    `json:"gpu_id"`
		UUID   string `json:"uuid"`
		PCI    string `json:"pci_address"`
		Serial string `json:"serial_number"`
		Name   string `json:"device_name"`
	}
	var gpus []gpu
	for i := range 8 {
		gpus = append(gpus, gpu{i, UUID(node, i), PCI(i), fmt.Sprintf("%s-%d", node, i), "NVIDIA H100 80GB HBM3"})
	}
	b, err := json.MarshalIndent(map[string]any{
		"version": "1.0", "timestamp": "2026-01-01T00:00:00Z", "node_name": node, "driver_version": "580.00", "gpus": gpus, "nvswitches": []string{},
	}, "", " ")
	if err != nil {
		panic(err) // a literal of plain values
	}
	return b
}

// Node reads a Node object as administrator.
func (f *Fleet) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return f.Cluster.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// ReplaceMachine puts another machine under a node's name: other identity,
// another boot, empty disks.
func (f *Fleet) ReplaceMachine(ctx context.Context, node string) error {
	for _, service := range []string{Monitor, Connector} {
		name := service + "@" + node
		if s := f.Service(name); s != nil {
			s.Stop(ctx)
		}
		f.mu.Lock()
		delete(f.services, name)
		f.mu.Unlock()
	}
	if err := f.Cluster.DeleteNode(ctx, node); err != nil {
		return err
	}
	if err := errors.Join(f.endKernel(node), os.RemoveAll(f.machine(node))); err != nil {
		return err
	}
	if _, err := f.Cluster.AddNode(ctx, localcluster.NodeSpec{Name: node}); err != nil {
		return err
	}
	if err := f.Cluster.WaitForNodes(ctx, node); err != nil {
		return err
	}
	return f.AddAgents(ctx, node)
}

// LoseState takes a monitor's state away, and what the kernel's ring has, as a new disk
// would on a machine whose ring was overwritten since; it starts the monitor again.
func (f *Fleet) LoseState(node string) error {
	if s := f.Service(Monitor + "@" + node); s != nil {
		s.Freeze(true)
		defer s.Kill() // ends a frozen process too
	}
	dir := filepath.Join(f.machine(node), "state")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	k, err := f.kernel(node)
	if err != nil {
		return err
	}
	k.log.Overwrite()
	return nil
}
