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
	NodeName string `toml:"nodeName" bounds:"not empty" flag:"node-name" usage:"name of the node this collector runs on"`
	// Path is the file that is written.
	Path string `toml:"metadataPath" bounds:"not empty" flag:"metadata-path" usage:"GPU metadata file to write"`
	// Library is the driver's.
	Library string `toml:"nvmlLibrary" flag:"nvml-library" usage:"path of the driver's library; empty lets the loader find libnvidia-ml.so.1"`
	// SysfsRoot is where sysfs is mounted.
	SysfsRoot string `toml:"sysfsRoot" bounds:"not empty" flag:"sysfs-root" usage:"where the node's sysfs is mounted"`
	// DriverPath is the driver's folder in /proc.
	DriverPath string `toml:"driverPath" flag:"driver-path" usage:"folder in which the driver shows its version and its GPUs; a change there has it asked at once"`
	// BootIDPath holds the id of the running boot.
	BootIDPath string `toml:"bootIDPath" bounds:"not empty" flag:"boot-id-path" usage:"file with the id of the running boot"`
	// Interval and Refresh are times between looks.
	Interval time.Duration `toml:"interval" bounds:"at least 1s" flag:"interval" usage:"time between two looks at the driver's folder, and between two tries"`
	Refresh  time.Duration `toml:"refresh" bounds:"at least interval" enforced:"Validate" flag:"refresh" usage:"longest time between two questions to the driver: how late a lost NVLink is in the file"`
	// Socket is the kubelet's.
	Socket string `toml:"podResourcesSocket" flag:"pod-resources-socket" usage:"the kubelet's PodResources socket, to annotate the node's pods with the GPUs that they hold; empty does not"`
	// Kube is how to reach the API server.
	Kube kube.Config `toml:"kube"`
	// Deadline bounds a question.
	Deadline time.Duration `toml:"deadline" bounds:"at least 1s" flag:"deadline" usage:"how long the driver may take to answer"`
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
		problems = append(problems, fmt.Errorf("refresh (--refresh) %s is less than the interval, %s", c.Refresh, c.Interval))
	}
	return errors.Join(problems...)
}
