package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

const (
	// superviseCommand is how a detached cluster's own process is called; people use up --detach.
	superviseCommand = "supervise"
	// reportFile is the file descriptor over which that process reports how the start goes.
	reportFile = 3
	// readyLine ends the report of a start that went well.
	readyLine = "ready"

	downLimit = 2 * time.Minute
	pollEvery = 100 * time.Millisecond
)

// up runs a cluster in the foreground until ctx ends.
func up(ctx context.Context, req request, stdout, stderr io.Writer) error {
	return own(ctx, req, stderr, func(s state) {
		fmt.Fprintf(stdout, "The cluster is running. In another shell:\n\n  export KUBECONFIG=%s\n\nCtrl-C stops it.\n", s.Kubeconfig)
	})
}

// own holds the state folder, runs the cluster and removes both when ctx ends or a part dies.
func own(ctx context.Context, req request, progress io.Writer, ready func(state)) (err error) {
	h, err := take(ctx, req.state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.release()) }()
	if err := h.write(state{PID: os.Getpid()}); err != nil {
		return err
	}
	dir, err := h.clusterDir()
	if err != nil {
		return err
	}
	cluster, err := localcluster.Start(ctx, localcluster.Options{
		Controllers: true, Nodes: req.nodes, NodePrefix: req.prefix, Progress: progress, Dir: dir,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	s := state{
		PID: os.Getpid(), Dir: dir, Kubeconfig: cluster.AdminKubeconfig(), Nodes: req.nodes, Prefix: req.prefix,
	}
	if err := h.write(s); err != nil {
		return err
	}
	ready(s)
	select {
	case <-ctx.Done():
		return nil
	case <-cluster.Failed():
		return cluster.Failure()
	}
}

// supervise is the process of a detached cluster: it reports its start over a pipe, then runs on.
func supervise(ctx context.Context, req request) error {
	report := os.NewFile(reportFile, "report")
	if info, err := report.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return fmt.Errorf("%w: supervise is for local-cluster itself", errUsage)
	}
	err := own(ctx, req, report, func(state) {
		fmt.Fprintln(report, readyLine)
		report.Close()
	})
	if err != nil {
		// Heard while the start lasts; afterwards nobody listens.
		fmt.Fprintln(report, err)
	}
	return err
}

// detach starts a process of its own session that owns the cluster, and returns when that is up.
func detach(ctx context.Context, req request, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the executable of this process: %w", err)
	}
	report, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("creating a pipe: %w", err)
	}
	defer report.Close()
	cmd := exec.Command(self, superviseCommand, "--state", req.state,
		"--nodes", strconv.Itoa(req.nodes), "--prefix", req.prefix)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		theirs.Close()
		return fmt.Errorf("starting the cluster process: %w", err)
	}
	theirs.Close()
	// A start that is interrupted is taken back: the process cleans up and closes the report.
	undo := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer undo()
	if err := follow(report, stderr); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	s, err := running(req.state)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "The cluster is running until \"local-cluster down\".\n\n  export KUBECONFIG=%s\n", s.Kubeconfig)
	return cmd.Process.Release()
}

// follow passes the report of a start on, and fails unless the start went well.
func follow(report io.Reader, stderr io.Writer) error {
	lines := bufio.NewScanner(report)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == readyLine {
			return nil
		}
		fmt.Fprintln(stderr, lines.Text())
	}
	return errors.Join(errors.New("the cluster did not start"), lines.Err())
}

// down asks the owner of the cluster in dir to stop, and waits until it has.
func down(ctx context.Context, dir string, stderr io.Writer) error {
	s, err := running(dir)
	if errors.Is(err, errNoCluster) {
		fmt.Fprintln(stderr, "local-cluster: no cluster is running")
		return sweep(ctx, dir)
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping process %d: %w", s.PID, err)
	}
	err = wait.PollUntilContextTimeout(ctx, pollEvery, downLimit, true, func(context.Context) (bool, error) {
		_, err := running(dir)
		return errors.Is(err, errNoCluster), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for process %d to stop the cluster: %w", s.PID, err)
	}
	return sweep(ctx, dir)
}

// sweep removes what an owner that was killed could not.
func sweep(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	h, err := take(ctx, dir)
	if err != nil {
		return err
	}
	_, err = h.clusterDir()
	return errors.Join(err, h.release())
}
