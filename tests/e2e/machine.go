package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/internal/controlplane"
	"github.com/nvidia/nvsentinel/internal/kmsgtest"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

const (
	// nodeName of the real node.
	nodeName = "real-0"
	// bootIDFile is what the kernel's boot id reads as, by hack/e2e.sh.
	bootIDFile = "/var/log/e2e/boot_id"
	// offTime is how long the machine is without power when it reboots.
	offTime = 2 * time.Second
)

// machine is the real node: containerd, kubelet and kube-proxy.
type machine struct {
	dir, kubeconfig string
	bins            controlplane.NodeBinaries
	log             func(string, ...any)
	kernel          *kmsgtest.Device // ends with the program

	mu      sync.Mutex
	kubelet *exec.Cmd
	reboots int
}

// startMachine starts what a node runs, and brings the images that the folder has.
func startMachine(ctx context.Context, s *site, images string) (*machine, error) {
	m := &machine{dir: filepath.Join(s.Work, "node"), bins: s.bins, log: s.log}
	if err := m.configure(s.cluster); err != nil {
		return nil, err
	}
	if _, err := m.run("containerd", "-c", m.file("containerd.toml")); err != nil {
		return nil, err
	}
	if err := until(ctx, time.Minute, func(ctx context.Context) error { return m.ctr(ctx, nil, "version") }); err != nil {
		return nil, fmt.Errorf("starting containerd: %w", err)
	}
	archives, err := filepath.Glob(filepath.Join(images, "*.tar"))
	if err != nil || len(archives) == 0 {
		return nil, fmt.Errorf("there is no image in %s: %w", images, err)
	}
	for _, archive := range archives {
		if err := m.ctr(ctx, nil, "images", "import", archive); err != nil {
			return nil, fmt.Errorf("importing %s: %w", filepath.Base(archive), err)
		}
	}
	s.log("%d images imported", len(archives))
	if err := m.breakImage(ctx, s.Break); err != nil {
		return nil, err
	}
	if _, err := m.run("kube-proxy", "--config", m.file("kube-proxy.yaml"), "--hostname-override", nodeName); err != nil {
		return nil, err
	}
	if m.kernel, err = kmsgtest.Open(kernelFolder); err != nil {
		return nil, err
	}
	if err := errors.Join(prepareBus(), m.startBus(ctx)); err != nil {
		return nil, err
	}
	boot, err := os.ReadFile(bootIDFile)
	if err := errors.Join(err, m.boots(strings.TrimSpace(string(boot)))); err != nil {
		return nil, err
	}
	return m, m.on()
}

// breakImage has an image be one that does nothing.
func (m *machine) breakImage(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	var output strings.Builder
	if err := m.ctr(ctx, &output, "images", "ls", "-q"); err != nil {
		return err
	}
	for image := range strings.FieldsSeq(output.String()) {
		if strings.HasPrefix(image, registry+"/nvidia/nvsentinel/"+name+":") {
			m.log("BREAK: %s does nothing", image)
			return m.ctr(ctx, nil, "images", "tag", "--force", registry+"/pause:v1", image)
		}
	}
	return fmt.Errorf("BREAK=%s is no image of the run; it has %s", name, output.String())
}

// configure writes the parts' files.
func (m *machine) configure(cluster *localcluster.Cluster) (err error) {
	if err := os.MkdirAll(m.file("cni"), 0o755); err != nil {
		return err
	}
	if m.kubeconfig, err = cluster.UserKubeconfig("kubelet", "system:node:"+nodeName, "system:nodes"); err != nil {
		return err
	}
	proxy, err := cluster.UserKubeconfig("kube-proxy", "system:kube-proxy")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "kube-proxy.yaml": proxyConfig, "cni/10-pods.conflist": podNetwork,
	} {
		text = strings.NewReplacer("DIR", m.dir, "PROXY_KUBECONFIG", proxy, "ADDRESS", address, "POD_RANGE", podRange).Replace(text)
		if err := os.WriteFile(m.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) file(name string) string { return filepath.Join(m.dir, name) }

// run starts a part, whose log is a file of its name.
func (m *machine) run(name string, args ...string) (*exec.Cmd, error) {
	path := map[string]string{"kubelet": m.bins.Kubelet, "kube-proxy": m.bins.KubeProxy}[name]
	if path == "" {
		path = name
	}
	log, err := os.OpenFile(m.file(name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...) // it ends with the namespace
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return cmd, nil
}

// ctr runs a command of containerd's client, and appends its output.
func (m *machine) ctr(ctx context.Context, output *strings.Builder, args ...string) error {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", m.file("containerd.sock"), "--namespace", "k8s.io"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	if output != nil {
		output.Write(out)
	}
	return nil
}

// on starts the kubelet, which finds the containers that are there.
func (m *machine) on() (err error) {
	m.kubelet, err = m.run("kubelet", "--config", m.file("kubelet.yaml"), "--kubeconfig", m.kubeconfig, "--hostname-override", nodeName,
		"--node-ip", address, "--root-dir", m.file("kubelet"), "--cert-dir", m.file("pki"), "--node-labels", "nvidia.com/gpu.present=true")
	return err
}

// reboot has everything that runs on the machine die at once, and the kernel boot with
// another boot id.
func (m *machine) reboot(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.kubelet.Process.Kill()
	_ = m.kubelet.Wait() // by the signal
	processes, list := m.processes(ctx)
	for _, one := range processes {
		err = errors.Join(err, one.signal(syscall.SIGKILL))
	}
	boot := uuid.NewString()
	err = errors.Join(err, list, os.WriteFile(bootIDFile, []byte(boot+"\n"), 0o444), m.boots(boot))
	m.reboots++
	m.log("the machine reboots: %d containers died with it", len(processes))
	time.Sleep(offTime)
	return errors.Join(err, m.on())
}

// boots begins the kernel's log of a boot.
func (m *machine) boots(boot string) error {
	m.kernel.Reboot()
	return errors.Join(m.kernel.Print("Linux version 6.8.0 (boot "+boot+")"), os.WriteFile(busBootID, []byte(boot+"\n"), 0o644))
}

// kubeletSignal stops the kubelet, or lets it continue.
func (m *machine) kubeletSignal(with syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kubelet.Process.Signal(with)
}

// rebooted is how often the machine did.
func (m *machine) rebooted() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reboots
}

// task is the first process of a container.
type task struct {
	container string
	pid       int
}

// signal it as the kernel does.
func (t task) signal(with syscall.Signal) error {
	if err := syscall.Kill(t.pid, with); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to container %s: %w", with, t.container, err)
	}
	return nil
}

// processes are those of all containers that run.
func (m *machine) processes(ctx context.Context) (out []task, err error) {
	var output strings.Builder
	if err := m.ctr(ctx, &output, "tasks", "ls"); err != nil {
		return nil, err
	}
	for line := range strings.Lines(output.String()) {
		if words := strings.Fields(line); len(words) == 3 && words[2] == "RUNNING" {
			pid, err := strconv.Atoi(words[1])
			if err != nil {
				return nil, fmt.Errorf("ctr says %q: %w", line, err)
			}
			out = append(out, task{words[0], pid})
		}
	}
	return out, nil
}

// until retries until try succeeds, and returns the last problem after limit.
func until(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var amiss error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || amiss == nil {
			amiss = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", limit, amiss)
		case <-tick.C:
		}
	}
}
