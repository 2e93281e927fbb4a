package localcluster_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/controlplane"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// parentDir, when set, makes this test binary a program that starts a cluster in that folder and
// then waits to be killed.
const parentDir = "LOCALCLUSTER_TEST_PARENT_DIR"

func beParent(dir string) {
	c, err := localcluster.Start(context.Background(), localcluster.Options{Dir: dir, Controllers: true, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started", c.Dir())
	select {}
}

// processesOf finds the processes whose command line names dir, which all of a cluster do.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(lines) == 0 {
		t.Fatalf("reading the list of processes: %d, %v", len(lines), err)
	}
	var found []string
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), dir) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// nothingLeft waits until no process names dir and dir is gone.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	eventually(t, func(context.Context) error {
		if left := processesOf(t, dir); len(left) > 0 {
			return fmt.Errorf("processes left: %q", left)
		}
		_, err := os.Stat(dir)
		if err == nil {
			return errors.New("the folder is left")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func TestTwoClustersSideBySide(t *testing.T) {
	first := localcluster.ForTest(t, localcluster.Options{})
	second, err := localcluster.Start(t.Context(), localcluster.Options{Nodes: 2, NodePrefix: "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	list, err := second.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("nodes of the second: %d, %v", len(list.Items), err)
	}
	list, err = first.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("nodes of the first: %d, %v", len(list.Items), err)
	}
	if got := len(processesOf(t, second.Dir())); got != 3 {
		t.Errorf("processes of a cluster without controllers: %d, want 3", got)
	}
	for range 2 {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, second.Dir())
	if err := second.StartAPIServer(t.Context()); err == nil || !strings.Contains(err.Error(), "is stopped") {
		t.Errorf("starting a part of a stopped cluster: %v", err)
	}
}

func TestCancelDuringStart(t *testing.T) {
	for _, started := range []string{"etcd", "kube-apiserver", "kwok"} {
		t.Run(started, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cancelled")
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() {
				_, err := localcluster.Start(ctx, localcluster.Options{Dir: dir, Controllers: true, Nodes: 1})
				result <- err
			}()
			eventually(t, func(context.Context) error {
				_, err := os.Stat(filepath.Join(dir, started+".log"))
				return err
			})
			cancel()
			if err := <-result; !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled start: %v", err)
			}
			nothingLeft(t, dir)
		})
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(t.TempDir(), "broken")
	bins, err := controlplane.Builder{Progress: os.Stderr}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A cache of the same version whose API server only complains.
	version := filepath.Join(cache, filepath.Base(filepath.Dir(bins.Etcd)))
	if err := os.Mkdir(version, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bins.Etcd, filepath.Join(version, "etcd")); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho no such flag >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(version, "kube-apiserver"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = localcluster.Start(t.Context(), localcluster.Options{
		Dir: dir, Builder: controlplane.Builder{Cache: cache},
	})
	if err == nil || !strings.Contains(err.Error(), "no such flag") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("start with a broken API server: %v", err)
	}
	nothingLeft(t, dir)
}

func TestStartRefusesAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := localcluster.Start(t.Context(), localcluster.Options{Dir: dir}); err == nil {
		t.Fatal("started in a folder that is not empty")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestKilledParentLeavesNothing(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "orphaned")
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentDir+"="+dir)
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, err := output.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "started") {
		t.Fatalf("the parent said %q, %v", line[:n], err)
	}
	if got := len(processesOf(t, dir)); got != 6 {
		t.Errorf("processes of a cluster with controllers: %d, want 6", got)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := parent.Wait(); !errors.As(err, &exit) {
		t.Fatalf("the killed parent: %v", err)
	}
	nothingLeft(t, dir)
}
