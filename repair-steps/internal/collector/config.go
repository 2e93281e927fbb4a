// Package collector collects what a node's logs and tools say into one archive, part by
// part, with secrets masked and within bounds of time and size.
package collector

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Bounds of what can be set.
const (
	maxUnits = 32
	// maxFiles is how many files of the host are parts at most.
	maxFiles = 128
)

// Config is what is collected.
type Config struct {
	// Node is told in the manifest.
	Node string `toml:"nodeName" flag:"node-name" env:"NODE_NAME" usage:"name of the node, for the manifest; NODE_NAME in the environment is its default"`
	// HostRoot is where the host's root, or folders of it, are mounted.
	HostRoot string `toml:"hostRoot" bounds:"not empty" flag:"host-root" usage:"folder with the host's root, or with folders of it such as var/log"`
	// ToolRoots are folders with other roots that tools may be in.
	ToolRoots []string `toml:"toolRoots" flag:"tool-roots" usage:"roots in which tools are looked for that are not in PATH; one that is found there runs with that root for its own, which takes the capability SYS_CHROOT"`
	// WorkDir holds the parts and the archive until it is sent.
	WorkDir string `toml:"workDir" bounds:"not empty" flag:"work-dir" usage:"folder for the archive until it is sent; needs max-total-bytes and three times max-part-bytes"`

	Units []string      `toml:"units" bounds:"at most 32" enforced:"lists" flag:"units" usage:"units whose journals are collected; * is allowed"`
	Since time.Duration `toml:"since" bounds:"above 0s" flag:"since" usage:"how far back the journals of units are read; the kernel's is read from the boot on"`
	Files []string      `toml:"files" flag:"files" usage:"files of the host, by patterns"`
	// SMI and BugReport ask the driver.
	SMI       bool `toml:"nvidiaSMI" flag:"nvidia-smi" usage:"ask nvidia-smi -q, where it is found"`
	BugReport bool `toml:"nvidiaBugReport" flag:"nvidia-bug-report" usage:"run nvidia-bug-report.sh, where it is found"`

	PartTimeout      time.Duration `toml:"partTimeout" bounds:"above 0s" flag:"part-timeout" usage:"how long one part may take"`
	BugReportTimeout time.Duration `toml:"nvidiaBugReportTimeout" bounds:"above 0s" flag:"nvidia-bug-report-timeout" usage:"how long nvidia-bug-report.sh may take"`
	Timeout          time.Duration `toml:"timeout" bounds:"above 0s" flag:"timeout" usage:"how long all parts may take; what is not collected then is left out"`
	MaxPart          int64         `toml:"maxPartBytes" bounds:"at least 1048576 bytes" flag:"max-part-bytes" usage:"bytes of one part; of a longer one the newest are kept"`
	MaxTotal         int64         `toml:"maxTotalBytes" bounds:"at least maxPartBytes" enforced:"Validate" flag:"max-total-bytes" usage:"bytes of all parts, before they are compressed; what is more is left out"`
}

// Default collects from the kernel, the kubelet, the container runtime and the GPU stack.
func Default() Config {
	return Config{
		HostRoot: "/host", ToolRoots: []string{"/host", "/host/run/nvidia/driver"}, WorkDir: "/tmp",
		Units: []string{"kubelet", "containerd", "crio", "nvidia-*", "dcgm", "nvsentinel-*"}, Since: 24 * time.Hour,
		Files: []string{
			"var/log/kern.log", "var/log/dmesg", "var/log/fabricmanager.log", "var/log/nvidia-installer.log",
			"var/log/pods/nvsentinel_*/*/*.log", "var/log/pods/gpu-operator_*/*/*.log",
		},
		SMI: true, BugReport: true,
		PartTimeout: time.Minute, BugReportTimeout: 4 * time.Minute, Timeout: 10 * time.Minute,
		MaxPart: 32 << 20, MaxTotal: 256 << 20,
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c), c.lists()}
	if c.MaxTotal < c.MaxPart {
		problems = append(problems, fmt.Errorf("maxTotalBytes (--max-total-bytes) is %d; it must be at least that of one part, %d", c.MaxTotal, c.MaxPart))
	}
	return errors.Join(problems...)
}

func (c Config) lists() error {
	var problems []error
	if len(c.Units) > maxUnits {
		problems = append(problems, fmt.Errorf("units (--units) has %d entries; %d are the most", len(c.Units), maxUnits))
	}
	for _, u := range c.Units {
		if strings.HasPrefix(u, "-") || strings.ContainsAny(u, "/ \t\n") {
			problems = append(problems, fmt.Errorf("units (--units): %q is no name of a unit", u))
		}
	}
	for _, f := range c.Files {
		if _, err := path.Match(f, ""); err != nil || path.IsAbs(f) || strings.HasPrefix(path.Clean(f), "..") {
			problems = append(problems, fmt.Errorf("files (--files): %q is no pattern of a file below the host's root, such as var/log/*.log", f))
		}
	}
	return errors.Join(problems...)
}
