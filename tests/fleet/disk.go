package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Disk is a small file system that holds a connector's spool. It lives in the
// mount namespace of a process of its own and goes with it, so that nothing is
// left of it even when we are killed.
type Disk struct {
	holder *exec.Cmd
	root   string
}

const filler = "filler"

// SmallDisk moves the spool of a node's connector to a file system of the
// given size (for example "8m"). It needs the right to mount, or the right to
// make user namespaces.
func (f *Fleet) SmallDisk(node, size string) (*Disk, error) {
	spool := filepath.Join(f.machine(node), "spool")
	s := f.Service(Connector + "@" + node)
	if s == nil {
		return nil, fmt.Errorf("node %s has no connector", node)
	}
	d, err := f.mount(node, size)
	if err != nil {
		return nil, fmt.Errorf("making a small disk: %w", err)
	}
	f.mu.Lock()
	f.disks = append(f.disks, d)
	f.mu.Unlock()
	return d, s.Swap(func() error {
		return errors.Join(os.CopyFS(d.root, os.DirFS(spool)), os.RemoveAll(spool), os.Symlink(d.root, spool))
	})
}

// mount starts the process that holds the file system.
func (f *Fleet) mount(node, size string) (*Disk, error) {
	point := filepath.Join(f.Dir, "disk-"+node)
	if err := os.MkdirAll(point, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.Command("sh", "-c", `mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec sleep infinity`, "sh", size, point)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.launcher.start(cmd); err != nil {
		return nil, err
	}
	d := &Disk{holder: cmd, root: fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, point)}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		d.drop()
		return nil, fmt.Errorf("mounting: %s", strings.TrimSpace(problem.String()))
	}
	return d, nil
}

// Fill leaves no byte free.
func (d *Disk) Fill() error {
	file, err := os.OpenFile(filepath.Join(d.root, filler), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("filling the disk: %w", err)
	}
	for block := make([]byte, 64<<10); ; {
		if _, err = file.Write(block); err == nil {
			continue
		}
		if len(block) == 1 || !errors.Is(err, syscall.ENOSPC) {
			break
		}
		block = block[:max(1, len(block)/16)]
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(fmt.Errorf("filling the disk: %w", err), file.Close())
	}
	return file.Close()
}

// Empty frees the space again.
func (d *Disk) Empty() error { return os.Remove(filepath.Join(d.root, filler)) }

// drop ends the holder and with it the file system.
func (d *Disk) drop() {
	_ = syscall.Kill(-d.holder.Process.Pid, syscall.SIGKILL)
	_ = d.holder.Wait()
}
