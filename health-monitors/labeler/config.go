package labeler

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/lease"
)

// Config is the configuration of the labeler.
type Config struct {
	lease.Cluster

	// DCGMApp, DriverApp and GKEApp are how pods are found.
	DCGMApp   string `toml:"dcgmAppLabel" bounds:"not empty" flag:"dcgm-app-label" usage:"Value of the label app of DCGM Pods."`
	DriverApp string `toml:"driverAppLabel" bounds:"not empty" flag:"driver-app-label" usage:"Value of the label app of driver Pods. Pods with app.kubernetes.io/component=nvidia-driver count too."`
	GKEApp    string `toml:"gkeInstallerAppLabel" flag:"gke-installer-app-label" usage:"Value of the label k8s-app of the GKE driver installer. Empty does not search for it."`
	// PodNamespaces are those of the operators: anyone who may create pods there decides what the
	// labels show.
	PodNamespaces []string `toml:"podNamespaces" bounds:"1 to 16 namespaces" enforced:"Validate" flag:"pod-namespaces" usage:"Namespaces of the operators that run DCGM and the driver. Pods in other namespaces are not read."`
	// KataLabel is another label that marks a node as running Kata.
	KataLabel string `toml:"kataLabel" flag:"kata-label" usage:"Additional node label that marks a node as running Kata, in addition to katacontainers.io/kata-runtime. Its value must be true, enabled, 1 or yes."`
	// AssumeDCGM and AssumeDriver set what no pod shows.
	AssumeDCGM   string `toml:"assumeDCGMVersion" flag:"assume-dcgm-version" usage:"DCGM version, for example 4.x, of every node with nvidia.com/gpu.present=true. Empty detects the version from the DCGM Pods."`
	AssumeDriver bool   `toml:"assumeDriverInstalled" flag:"assume-driver-installed" usage:"If true, treats every node with nvidia.com/gpu.present=true as having the driver."`
	// RequireReady holds the version back until DCGM was Ready once.
	RequireReady bool `toml:"requireDCGMReadyForBootstrap" flag:"require-dcgm-ready-for-bootstrap" usage:"If true, sets the label of the DCGM version only when the DCGM Pod is Ready. The label then stays for as long as the Pod exists."`
	// Grace is how long something must be missing.
	Grace time.Duration `toml:"gracePeriod" bounds:"at least 1m" flag:"grace-period" usage:"Time that a Pod must be absent, or a device count reduced, before the labels change. It bridges the replacement of a Pod."`
	// ClassesFile has the classes of devices; they are read once.
	ClassesFile string `toml:"expectedDeviceCountsConfigFile" flag:"expected-device-counts-config-file" usage:"TOML file with the classes of devices to count. Empty uses the built-in classes."`
	// Workers is how many nodes are worked on at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"Maximum number of nodes that are labeled concurrently."`
}

// defaultConfig is the configuration without special wishes.
var defaultConfig = Config{
	DCGMApp: "nvidia-dcgm", DriverApp: "nvidia-driver-daemonset", GKEApp: "nvidia-driver-installer",
	PodNamespaces: []string{"gpu-operator", "nvidia-gpu-operator", "kube-system"}, RequireReady: true, Grace: 10 * time.Minute, Workers: 8, Cluster: lease.DefaultCluster(),
}

// maxNamespaces bounds the namespaces, of each of which up to four lists are watched.
const maxNamespaces = 16

// version is what a version of DCGM is written as.
var version = regexp.MustCompile(`^[0-9]{1,2}\.x$`)

// Validate lists everything that is wrong, the file of classes included.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c), c.Cluster.Validate()}
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	for _, value := range [][2]string{
		{"dcgmAppLabel (--dcgm-app-label)", c.DCGMApp}, {"driverAppLabel (--driver-app-label)", c.DriverApp}, {"gkeInstallerAppLabel (--gke-installer-app-label)", c.GKEApp},
	} {
		wrong(len(validation.IsValidLabelValue(value[1])) > 0, "%s %q is not a valid label value", value[0], value[1])
	}
	wrong(len(c.PodNamespaces) == 0 || len(c.PodNamespaces) > maxNamespaces, "podNamespaces (--pod-namespaces) has %d namespaces: set 1 to %d, those of the operators that run DCGM and the driver", len(c.PodNamespaces), maxNamespaces)
	for i, name := range c.PodNamespaces {
		wrong(len(validation.IsDNS1123Label(name)) > 0 || slices.Contains(c.PodNamespaces[:i], name), "podNamespaces (--pod-namespaces) has %q: use names of namespaces, each of them once", name)
	}
	wrong(c.KataLabel != "" && len(validation.IsQualifiedName(c.KataLabel)) > 0, "kataLabel (--kata-label) %q is not a valid label key", c.KataLabel)
	wrong(c.AssumeDCGM != "" && !version.MatchString(c.AssumeDCGM), "assumeDCGMVersion (--assume-dcgm-version) %q is not a version such as 4.x", c.AssumeDCGM)
	_, err := c.policy()
	return errors.Join(append(problems, err)...)
}

// policy is what decisions need of the configuration.
func (c Config) policy() (labeling.Policy, error) {
	file, text := "the built-in classes", labeling.Builtin
	if c.ClassesFile != "" {
		content, err := os.ReadFile(c.ClassesFile)
		if err != nil {
			return labeling.Policy{}, fmt.Errorf("reading the classes of devices: %w", err)
		}
		file, text = c.ClassesFile, string(content)
	}
	classes, err := labeling.Parse(file, text)
	return labeling.Policy{
		Grace: c.Grace, RequireReady: c.RequireReady, AssumeDCGM: c.AssumeDCGM, AssumeDriver: c.AssumeDriver, KataLabel: c.KataLabel, Classes: classes,
	}, err
}
