package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/tests/programs"
)

// GPUMonitor is the service that looks at DCGM on a node. It is built with a C
// compiler, so no fleet has it before AddDCGM.
const GPUMonitor = "gpu-health-monitor"

// BuildDCGM builds what AddDCGM runs into dir: the monitor with cgo, and a simulated
// library of DCGM. Where there is no C compiler the error is dcgmsim's.
func BuildDCGM(ctx context.Context, root, dir string, progress io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := dcgmsim.Build(ctx, dir); err != nil {
		return err
	}
	return gobuild.Builder{Progress: progress}.Build(ctx, programs.WithCgo(root, dir))
}

// AddDCGM gives a node a simulated host engine with its eight GPUs, and starts the
// monitor that looks at it, each second; built is the folder of BuildDCGM.
func (f *Fleet) AddDCGM(node, built string) (*dcgmsim.Engine, error) {
	dir := f.machine(node)
	for _, sub := range []string{"dcgm", "gpu-state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	var gpus []reading.Device
	for i := range 8 {
		gpus = append(gpus, reading.Device{ID: uint(i), Status: reading.OK, UUID: UUID(node, i), PCI: "0000" + PCI(i)})
	}
	engine := dcgmsim.Open(filepath.Join(dir, "dcgm"), gpus, func(err error) { panic(fmt.Sprintf("the simulated host engine of %s: %v", node, err)) })
	f.mu.Lock()
	f.engines[node] = engine
	f.mu.Unlock()
	binary, err := filepath.Abs(filepath.Join(built, GPUMonitor))
	if err != nil {
		return nil, err
	}
	f.Launch(GPUMonitor+"@"+node, binary, []string{
		"--node-name", node, "--boot-id-path", filepath.Join(dir, "boot_id"), "--state-dir", filepath.Join(dir, "gpu-state"),
		"--metadata-path", filepath.Join(dir, "gpu_metadata.json"), "--platform-connector-socket", "unix://" + f.Socket(node),
		"--poll-interval", "1s", "--settle-time", f.options.SettleTime.String(), "--processingStrategy", f.strategy(node), "--metrics-address", "127.0.0.1:0",
	}, engine.Environment(built))
	return engine, nil
}

// rebooted is what a reboot does to a node's host engine: it starts again, and what
// it had latched is forgotten.
func (f *Fleet) rebooted(node string) {
	f.mu.Lock()
	engine := f.engines[node]
	f.mu.Unlock()
	if engine != nil {
		engine.Reboot()
	}
}
