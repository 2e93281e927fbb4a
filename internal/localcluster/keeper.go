package localcluster

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// keeperScript waits until its input ends, which the kernel sees to when the parent dies, then
// removes the folder. It tries again while dying children still write there.
const keeperScript = `trap '' INT TERM HUP
read -r _
n=0
until rm -rf -- "$1" 2>/dev/null && sleep 0.2 && [ ! -e "$1" ]; do
	n=$((n + 1))
	[ "$n" -lt 50 ] || exit 1
	sleep 0.1
done`

// keeper is a small shell that removes the cluster's folder when the parent is gone, even after SIGKILL.
type keeper struct {
	cmd   *exec.Cmd
	input io.Closer
}

func startKeeper(dir string) (*keeper, error) {
	//nolint:noctx // it outlives every context: its work begins when this process is dead
	cmd := exec.Command("/bin/sh", "-c", keeperScript, "local-cluster-keeper", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("creating the keeper's pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the keeper of %s: %w", dir, err)
	}
	return &keeper{cmd: cmd, input: input}, nil
}

// dismiss ends the keeper without letting it act; the caller removes the folder itself.
func (k *keeper) dismiss() {
	_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL)
	_ = k.cmd.Wait()
	_ = k.input.Close()
}
