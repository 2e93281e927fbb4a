package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// childEnv makes this test binary the program itself.
const childEnv = "GPU_RESET_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// driver builds the program that stands in for the driver's, without a library, so
// that it runs within any root.
var driver = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "nvidia-smi")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.CommandContext(context.Background(), "go", "build", "-o", filepath.Join(dir, "nvidia-smi"), ".")
	build.Dir, build.Env = "testdata/nvidia-smi", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the driver's program: %w\n%s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "nvidia-smi"))
})

const (
	first  = "GPU-11111111-d5ea-c752-ddf3-c4453e44d3f7"
	second = "GPU-22222222-d5ea-c752-ddf3-c4453e44d3f7"
	gpus   = first + " 0000:18:00.0 ok\n" + second + " 0000:3b:00.0 "
)

// driverRoot is a folder with a driver of these GPUs.
func driverRoot(t *testing.T, gpus string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := driver()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/nvidia-smi"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"gpus": gpus, "kmsg": ""} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestProgram: the variables of the Job, the driver's program within its root, the
// records of the kernel log, and the exit code.
func TestProgram(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing the root is root's, as whom the Job runs")
	}
	outcome := func(uuid, success string) string {
		return "<14>nvsentinel-gpu-reset: GPU reset executed: " + uuid + ", success: " + success + "\n"
	}
	for name, tt := range map[string]struct {
		second, names, calls, kmsg string
		code                       int
		message                    string
	}{
		"one": {"ok", first, "--gpu-reset -i " + first + "\n-q -i " + first + "\n", outcome(first, "true"), 0, "success: true"},
		"all": {"ok", "", "--query-gpu=uuid --format=csv,noheader\n--gpu-reset -i " + first + "\n-q -i " + first +
			"\n--gpu-reset -i " + second + "\n-q -i " + second + "\n", outcome(first, "true") + outcome(second, "true"), 0, ""},
		"by bus id": {"ok", "0000:3b:00.0", "--query-gpu=uuid --format=csv,noheader -i 0000:3b:00.0\n--gpu-reset -i 0000:3b:00.0\n-q -i 0000:3b:00.0\n",
			outcome(second, "true"), 0, ""},
		"in use": {"busy", second + "," + first, "--gpu-reset -i " + second + "\n--gpu-reset -i " + first + "\n-q -i " + first + "\n",
			outcome(second, "false") + outcome(first, "true"), 1, "in use"},
		"lost afterwards": {"lost", second, "--gpu-reset -i " + second + "\n-q -i " + second + "\n", outcome(second, "false"), 1, "GPU is lost"},
		"no such bus id":  {"ok", "0000:ff:00.0", "--query-gpu=uuid --format=csv,noheader -i 0000:ff:00.0\n", "", 1, "No devices were found"},
		"no name":         {"ok", "0; reboot", "", "", 1, "neither the UUID of a GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			root := driverRoot(t, gpus+tt.second+"\n")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-kernel-log", filepath.Join(root, "kmsg"))
			cmd.Env = append(os.Environ(), childEnv+"=1", "NVIDIA_GPU_RESETS="+tt.names, "DRIVER_ROOT="+root, "NVIDIA_VISIBLE_DEVICES=void")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), tt.message) {
				t.Errorf("%v, want exit code %d and %q; it says\n%s", err, tt.code, tt.message, out)
			}
			for file, want := range map[string]string{"calls": tt.calls, "kmsg": tt.kmsg} {
				got, err := os.ReadFile(filepath.Join(root, file))
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, string(got)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", file, diff)
				}
			}
		})
	}
}

func TestADriverRootWithoutADriver(t *testing.T) {
	err := run(t.Context(), "", t.TempDir(), os.DevNull)
	if err == nil || !strings.Contains(err.Error(), "driverRoot") {
		t.Errorf("error %v, want one that names the key", err)
	}
}

// Without a kernel log nothing is touched: nobody would learn of it.
func TestNoKernelLog(t *testing.T) {
	root := driverRoot(t, gpus+"ok\n")
	err := run(t.Context(), first, root, filepath.Join(root, "none"))
	if err == nil || !strings.Contains(err.Error(), "resetting no GPU") {
		t.Errorf("error %v", err)
	}
	if calls, err := os.ReadFile(filepath.Join(root, "calls")); !os.IsNotExist(err) {
		t.Errorf("the driver was asked: %s, %v", calls, err)
	}
}
