package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestMain lets this test binary stand for the command when up --detach starts it again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == superviseCommand {
		main()
	}
	os.Exit(m.Run())
}

// call runs one command line.
func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestCommandLines(t *testing.T) {
	empty := t.TempDir()
	tests := map[string]struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"no command":         {nil, exitUsage, "", "no command given"},
		"help":               {[]string{"--help"}, exitFine, "Exit codes:", ""},
		"help of a command":  {[]string{"up", "--help"}, exitFine, "Exit codes:", ""},
		"unknown command":    {[]string{"sideways"}, exitUsage, "", `unknown command "sideways"`},
		"unknown flag":       {[]string{"down", "--nodes", "1"}, exitUsage, "", "not defined: -nodes"},
		"stray argument":     {[]string{"status", "now"}, exitUsage, "", `unexpected argument "now"`},
		"negative nodes":     {[]string{"up", "--nodes", "-1"}, exitUsage, "", "negative"},
		"status of none":     {[]string{"status", "--state", empty}, exitNoCluster, "", "no cluster is running"},
		"kubeconfig of none": {[]string{"kubeconfig", "--state", empty}, exitNoCluster, "", "no cluster is running"},
		"supervise by hand":  {[]string{superviseCommand, "--state", empty}, exitUsage, "", "supervise is for"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t.Context(), test.args...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", code, test.code, stdout, stderr)
			}
		})
	}
}

func TestDetachedCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	code, _, stderr := call(t.Context(), "up", "--detach", "--nodes", "1", "--prefix", "box", "--state", dir)
	if code != exitFine {
		t.Fatalf("up --detach: exit code %d\n%s", code, stderr)
	}
	defer call(context.WithoutCancel(t.Context()), "down", "--state", dir)

	code, stdout, _ := call(t.Context(), "kubeconfig", "--state", dir)
	if code != exitFine {
		t.Fatalf("kubeconfig: exit code %d", code)
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(stdout))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "box-0", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if code, stdout, _ := call(t.Context(), "status", "--state", dir); code != exitFine || !strings.Contains(stdout, "running") {
		t.Errorf("status: exit code %d\n%s", code, stdout)
	}
	if code, _, stderr := call(t.Context(), "up", "--state", dir); code != exitFailed || !strings.Contains(stderr, "is already running") {
		t.Errorf("second up: exit code %d\n%s", code, stderr)
	}

	if code, _, stderr := call(t.Context(), "down", "--state", dir); code != exitFine {
		t.Errorf("down: exit code %d\n%s", code, stderr)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state folder after down: %v", err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "box-0", metav1.GetOptions{}); err == nil {
		t.Error("the API server answers after down")
	}
	if code, _, _ := call(t.Context(), "down", "--state", dir); code != exitFine {
		t.Errorf("down of none: exit code %d", code)
	}
}

func TestKilledOwnerIsSwept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if code, _, stderr := call(t.Context(), "up", "--detach", "--nodes", "0", "--state", dir); code != exitFine {
		t.Fatalf("up --detach: exit code %d\n%s", code, stderr)
	}
	s, err := running(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) {
			_, err := running(dir)
			return errors.Is(err, errNoCluster), nil
		})
	if err != nil {
		t.Fatalf("status after the owner was killed: %v", err)
	}
	if code, _, stderr := call(t.Context(), "down", "--state", dir); code != exitFine {
		t.Errorf("down: exit code %d\n%s", code, stderr)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state folder after down: %v", err)
	}
}

func TestForegroundClusterStopsOnRequest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int, 1)
	go func() {
		code, _, _ := call(ctx, "up", "--nodes", "0", "--state", dir)
		done <- code
	}()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 5*time.Minute, true,
		func(context.Context) (bool, error) {
			s, err := running(dir)
			return err == nil && s.Kubeconfig != "", nil
		})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if code := <-done; code != exitFine {
		t.Errorf("exit code %d after a request to stop, want 0", code)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state folder after the end: %v", err)
	}
}
