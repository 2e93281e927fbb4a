package janitor

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/janitor/internal/gpureset"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

const resetKey = "gpuResetController"

// gpuOperator is the only service manager.
const gpuOperator = "gpu-operator"

// GPUReset configures the controller of GPUReset objects.
type GPUReset struct {
	// Enabled switches the controller on.
	Enabled bool `toml:"enabled" flag:"gpu-reset-enabled" usage:"If true, executes GPUReset objects."`
	// Nodes are those that this controller leaves alone, besides the global ones.
	Nodes NodesOverride `toml:"nodes"`
	// Timeout bounds the wait for the node, before its services are touched and while
	// it is away; 0 means Global.Timeout.
	Timeout time.Duration `toml:"timeout"`
	// ManualMode leaves the reset to a person, for this controller.
	ManualMode bool `toml:"manualMode"`
	// PollInterval is that of the reboot controller where it is 0.
	PollInterval time.Duration `toml:"pollInterval"`
	// ServiceManager runs the GPU services of a node.
	ServiceManager ServiceManager `toml:"serviceManager"`
	// ResetJob is the Job that resets GPUs.
	ResetJob ResetJob `toml:"resetJob"`
}

// ServiceManager describes how the GPU services leave a node and come back.
type ServiceManager struct {
	// Name is gpu-operator: the services are those of NVIDIA's GPU operator.
	Name string `toml:"name"`
	// Namespace of the services' pods.
	Namespace string `toml:"namespace" flag:"gpu-reset-services-namespace" usage:"Namespace of the Pods of the GPU operator."`
	// TeardownTimeout is how long the pods may take to go, RestoreTimeout to be Ready
	// again.
	TeardownTimeout time.Duration `toml:"teardownTimeout"`
	RestoreTimeout  time.Duration `toml:"restoreTimeout"`
}

// ResetJob is the Job that resets GPUs.
type ResetJob struct {
	// Image has the program gpu-reset as its entry point; there is no default.
	Image string `toml:"image" flag:"gpu-reset-image" usage:"Image of the gpu-reset program."`
	// ImagePullSecrets are Secrets of the Job's namespace.
	ImagePullSecrets []string `toml:"imagePullSecrets"`
	// Namespace of the Jobs; empty is that of the leases.
	Namespace string `toml:"namespace" flag:"gpu-reset-job-namespace" usage:"Namespace of the Jobs that reset GPUs. Empty uses the namespace of the lease."`
	// DriverRoot is the folder of a node below which nvidia-smi and its libraries are.
	DriverRoot string `toml:"driverRoot" flag:"gpu-reset-driver-root" usage:"Root directory of the driver installation on a node: /run/nvidia/driver if the GPU operator installs the driver, / if the node provides it."`
	// RuntimeClassName of the pod; empty is the cluster's.
	RuntimeClassName string `toml:"runtimeClassName"`
	// Timeout of the whole Job.
	Timeout time.Duration `toml:"timeout"`
}

func defaultGPUReset() GPUReset {
	return GPUReset{
		ServiceManager: ServiceManager{Name: gpuOperator, Namespace: gpuOperator, TeardownTimeout: 5 * time.Minute, RestoreTimeout: 10 * time.Minute},
		ResetJob:       ResetJob{DriverRoot: "/run/nvidia/driver", Timeout: 5 * time.Minute},
	}
}

// resetPolicy is what the decisions about GPUResets depend on.
func (c Config) resetPolicy() reset.Policy {
	own := c.GPUReset
	return reset.Policy{
		Policy: repair.Policy{
			Timeout: cmp.Or(own.Timeout, c.Global.Timeout), Poll: cmp.Or(own.PollInterval, c.RebootNode.PollInterval),
			Manual: c.Global.ManualMode || own.ManualMode, TTL: c.Global.TTL,
		},
		TeardownTimeout: own.ServiceManager.TeardownTimeout, RestoreTimeout: own.ServiceManager.RestoreTimeout,
		JobTimeout: own.ResetJob.Timeout,
	}
}

// resetTool is what the Jobs run.
func (c Config) resetTool() gpureset.Tool {
	job := c.GPUReset.ResetJob
	return gpureset.Tool{
		Namespace: cmp.Or(job.Namespace, c.Lease.Namespace), Image: job.Image, PullSecrets: job.ImagePullSecrets,
		DriverRoot: job.DriverRoot, RuntimeClass: job.RuntimeClassName, Deadline: job.Timeout,
	}
}

// resetExcluded are the nodes whose GPUs are not reset.
func (c Config) resetExcluded() ([]labels.Selector, error) {
	return excluded(c.exclusions(resetKey, c.GPUReset.Nodes))
}

// validateReset joins everything that is wrong with the controller.
func (c Config) validateReset() error {
	own, policy, tool := c.GPUReset, c.resetPolicy(), c.resetTool()
	_, err := c.resetExcluded()
	problems := []error{err}
	if own.ServiceManager.Name != gpuOperator {
		problems = append(problems, fmt.Errorf("%s.serviceManager.name is %q: must be %s", resetKey, own.ServiceManager.Name, gpuOperator))
	}
	for _, text := range []struct{ key, value, right string }{
		{"serviceManager.namespace", own.ServiceManager.Namespace, "set the namespace of the Pods of the GPU services"},
		{"resetJob.image", tool.Image, "set the image of gpu-reset that you have built (docs/concepts/remediation.md)"},
		{"resetJob.namespace", tool.Namespace, "set the namespace of the janitor, or --leader-elect-namespace"},
	} {
		if text.value == "" {
			problems = append(problems, fmt.Errorf("%s.%s is empty: %s", resetKey, text.key, text.right))
		}
	}
	if root := tool.DriverRoot; !path.IsAbs(root) || path.Clean(root) != root || strings.Contains(root, "..") {
		problems = append(problems, fmt.Errorf("%s.resetJob.driverRoot is %q: must be a clean absolute path", resetKey, root))
	}
	for _, d := range []struct {
		key   string
		value time.Duration
		least time.Duration
	}{
		{"timeout or global.timeout", policy.Timeout, 1},
		{"pollInterval or rebootNodeController.pollInterval", policy.Poll, 1},
		{"serviceManager.teardownTimeout", policy.TeardownTimeout, time.Second},
		{"serviceManager.restoreTimeout", policy.RestoreTimeout, time.Second},
		{"resetJob.timeout", policy.JobTimeout, time.Second},
	} {
		if d.value < d.least {
			problems = append(problems, fmt.Errorf("%s.%s is %s: must be at least %s", resetKey, d.key, d.value, d.least))
		}
	}
	return errors.Join(problems...)
}
