// Command metadata-collector writes the node's GPU metadata file, from which the
// monitors beside it know which GPU sits where, and annotates the node's pods with
// the GPUs that they hold.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/metadata"

	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/internal/nvml"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// purpose is the first sentence of the help.
const purpose = "metadata-collector writes the GPU metadata file of a node and annotates Pods with their GPUs."

func main() {
	if len(os.Args) == 3 && os.Args[1] == nvml.Argument {
		os.Exit(nvml.Main(os.Args[2], os.Stdout, os.Stderr))
	}
	daemon.Main(Name, purpose, Default, build)
}

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	driver, err := nvml.New(cfg.Library, cfg.Deadline)
	if err != nil {
		return err
	}
	collector := &Collector{
		Node: cfg.NodeName, Path: cfg.Path, Sysfs: cfg.SysfsRoot, DriverPath: cfg.DriverPath, Interval: cfg.Interval, Refresh: cfg.Refresh,
		Driver: driver, BootID: nodefile.BootID(cfg.BootIDPath), Clock: d.Clock, Log: d.Log, Metrics: NewMetrics(d.Registry),
	}
	looks := collector.Rounds()
	d.Ready("GPU metadata", looks.Ready)
	d.Go("GPU metadata", looks.Run)
	if cfg.Socket == "" {
		return nil
	}
	return annotatePods(d, cfg)
}

// annotatePods annotates the node's pods with the GPUs that they hold.
func annotatePods(d *daemon.Daemon, cfg Config) error {
	node, err := Dial(cfg.Socket)
	if err != nil {
		return err
	}
	d.OnStop("kubelet", func(context.Context) error { return node.Close() })
	cluster, err := kube.Connect(cfg.Kube, Name+"/"+d.Version)
	if err != nil {
		return err
	}
	pods, err := metadata.NewForConfig(cluster.Config)
	if err != nil {
		return fmt.Errorf("creating the pod client: %w", err)
	}
	annotator := &Annotator{
		Node: cfg.NodeName, Kubelet: node, Pods: pods, Interval: cfg.Interval, Refresh: cfg.Refresh,
		Clock: d.Clock, Log: d.Log, Metrics: NewPodMetrics(d.Registry),
	}
	looks := annotator.Rounds()
	d.Ready("GPUs of pods", looks.Ready)
	d.Go("GPUs of pods", looks.Run)
	return nil
}
