package gputool

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"time"
)

// places are where drivers have their programs, below the driver root: packages and
// the GPU operator's driver container, and the installers of clouds.
var places = []string{"/usr/bin", "/usr/local/bin", "/bin", "/usr/local/nvidia/bin", "/home/kubernetes/bin/nvidia/bin", "/opt/nvidia/bin"}

// killedWithin is the time that a killed program gets to release its output.
const killedWithin = 5 * time.Second

// Find is the path of nvidia-smi below a driver root, as it is called there.
func Find(root string) (string, error) {
	for _, place := range places {
		name := path.Join(place, "nvidia-smi")
		if info, err := os.Stat(path.Join(root, name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("no nvidia-smi below %s in any of %s: set DRIVER_ROOT (the janitor's gpuResetController.resetJob.driverRoot) to the folder of the driver",
		root, strings.Join(places, ", "))
}

// Driver runs a program of a driver root, within that root, so that it finds its own
// libraries. The root / is this process's own.
func Driver(root, program string) func(ctx context.Context, args ...string) (string, error) {
	return func(ctx context.Context, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.WaitDelay = "/", killedWithin
		cmd.Env = []string{"PATH=" + strings.Join(places, ":"), "LD_LIBRARY_PATH=" + path.Join(path.Dir(path.Dir(program)), "lib64")}
		if root != "/" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w: %.500s", path.Base(program), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return string(out), nil
	}
}
