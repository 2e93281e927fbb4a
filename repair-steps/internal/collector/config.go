// Package collector collects a node's logs and the output of its tools into one archive,
// part by part, with secrets masked and within bounds of time and size.
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
	// Node is written to the manifest.
	Node string `toml:"nodeName" flag:"node-name" env:"NODE_NAME" usage:"Name of the node, written to the manifest of the archive. The environment variable NODE_NAME sets its default."`
	// HostRoot is where the host's root, or folders of it, are mounted.
	HostRoot string `toml:"hostRoot" bounds:"not empty" flag:"host-root" usage:"Directory with the root file system of the host, or with parts of it such as var/log."`
	// ToolRoots are folders with other roots that tools may be in.
	ToolRoots []string `toml:"toolRoots" flag:"tool-roots" usage:"Root directories searched for tools that are not in PATH. A tool found there runs with that directory as its root, which requires the capability SYS_CHROOT."`
	// WorkDir holds the parts and the archive until it is sent.
	WorkDir string `toml:"workDir" bounds:"not empty" flag:"work-dir" usage:"Directory for the archive until it is uploaded. It needs the space of max-total-bytes plus three times max-part-bytes."`

	Units []string      `toml:"units" bounds:"at most 32" enforced:"lists" flag:"units" usage:"systemd units whose journals are collected. The wildcard * is allowed."`
	Since time.Duration `toml:"since" bounds:"above 0s" flag:"since" usage:"Maximum age of collected journal entries of units. The kernel journal is collected from the current boot on."`
	Files []string      `toml:"files" flag:"files" usage:"Patterns of host files to collect."`
	// SMI and BugReport ask the driver.
	SMI       bool `toml:"nvidiaSMI" flag:"nvidia-smi" usage:"If true, collects the output of nvidia-smi -q if the program exists."`
	BugReport bool `toml:"nvidiaBugReport" flag:"nvidia-bug-report" usage:"If true, collects the output of nvidia-bug-report.sh if the program exists."`

	PartTimeout      time.Duration `toml:"partTimeout" bounds:"above 0s" flag:"part-timeout" usage:"Timeout of one part of the collection."`
	BugReportTimeout time.Duration `toml:"nvidiaBugReportTimeout" bounds:"above 0s" flag:"nvidia-bug-report-timeout" usage:"Timeout of nvidia-bug-report.sh."`
	Timeout          time.Duration `toml:"timeout" bounds:"above 0s" flag:"timeout" usage:"Timeout of the whole collection. Parts that are not collected by then are omitted."`
	MaxPart          int64         `toml:"maxPartBytes" bounds:"at least 1048576 bytes" flag:"max-part-bytes" usage:"Maximum size of one part in bytes. Of a longer part, the newest bytes are kept."`
	MaxTotal         int64         `toml:"maxTotalBytes" bounds:"at least maxPartBytes" enforced:"Validate" flag:"max-total-bytes" usage:"Maximum size of all parts in bytes before compression. Further parts are omitted."`
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
		problems = append(problems, fmt.Errorf("maxTotalBytes (--max-total-bytes) is %d: set at least maxPartBytes, %d", c.MaxTotal, c.MaxPart))
	}
	return errors.Join(problems...)
}

func (c Config) lists() error {
	var problems []error
	if len(c.Units) > maxUnits {
		problems = append(problems, fmt.Errorf("units (--units) has %d entries, at most %d are allowed", len(c.Units), maxUnits))
	}
	for _, u := range c.Units {
		if strings.HasPrefix(u, "-") || strings.ContainsAny(u, "/ \t\n") {
			problems = append(problems, fmt.Errorf("units (--units): %q is not a valid unit name", u))
		}
	}
	for _, f := range c.Files {
		if _, err := path.Match(f, ""); err != nil || path.IsAbs(f) || strings.HasPrefix(path.Clean(f), "..") {
			problems = append(problems, fmt.Errorf("files (--files): %q is not a file pattern below the root directory of the host, such as var/log/*.log", f))
		}
	}
	return errors.Join(problems...)
}
