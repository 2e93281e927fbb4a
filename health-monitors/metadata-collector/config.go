package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// Name is that of the program.
const Name = "metadata-collector"

// Config is the configuration of the collector.
type Config struct {
	// NodeName is the Kubernetes name of the node; required.
	NodeName string `toml:"nodeName" bounds:"not empty" flag:"node-name" usage:"Name of the node that runs this collector."`
	// Path is the file that is written.
	Path string `toml:"metadataPath" bounds:"not empty" flag:"metadata-path" usage:"Path of the GPU metadata file that the collector writes."`
	// Library is the driver's.
	Library string `toml:"nvmlLibrary" flag:"nvml-library" usage:"Path of the NVML library of the driver. Empty loads libnvidia-ml.so.1 from the library path."`
	// SysfsRoot is where sysfs is mounted.
	SysfsRoot string `toml:"sysfsRoot" bounds:"not empty" flag:"sysfs-root" usage:"Path at which the sysfs of the node is mounted."`
	// DriverPath is the driver's folder in /proc.
	DriverPath string `toml:"driverPath" flag:"driver-path" usage:"Directory in which the driver publishes its version and GPUs. A change there triggers a query at once."`
	// BootIDPath holds the id of the running boot.
	BootIDPath string `toml:"bootIDPath" bounds:"not empty" flag:"boot-id-path" usage:"File with the ID of the current boot."`
	// Interval and Refresh are times between polls.
	Interval time.Duration `toml:"pollInterval" bounds:"at least 1s" flag:"poll-interval" usage:"Interval between two reads of the driver directory, and between two attempts after a failure."`
	Refresh  time.Duration `toml:"refreshInterval" bounds:"at least pollInterval" enforced:"Validate" flag:"refresh-interval" usage:"Maximum time between two queries to the driver. It bounds the delay until a lost NVLink is in the file."`
	// Socket is the kubelet's.
	Socket string `toml:"podResourcesSocket" flag:"pod-resources-socket" usage:"Path of the kubelet PodResources socket, used to annotate Pods with their GPUs. Empty annotates no Pods."`
	// Kube is how to reach the API server.
	Kube kube.Config `toml:"kube"`
	// Deadline bounds a query.
	Deadline time.Duration `toml:"queryTimeout" bounds:"at least 1s" flag:"query-timeout" usage:"Timeout of one query to the driver."`
}

// Default is the configuration of a node without special wishes.
var Default = Config{
	Path:       "/var/lib/nvsentinel/gpu_metadata.json",
	SysfsRoot:  "/sys",
	DriverPath: "/proc/driver/nvidia",
	BootIDPath: "/proc/sys/kernel/random/boot_id",
	Interval:   30 * time.Second,
	Refresh:    10 * time.Minute,
	Deadline:   time.Minute,
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c), c.Kube.Validate()}
	if c.Refresh < c.Interval {
		problems = append(problems, fmt.Errorf("refreshInterval (--refresh-interval) is %s, set it to at least pollInterval, %s", c.Refresh, c.Interval))
	}
	return errors.Join(problems...)
}
