package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMain lets the test binary be the service that TestProcess starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--name=process" {
		Main("svc", "svc is a test.", settings{}, func(_ context.Context, d *Daemon, _ settings) error {
			d.Go("work", func(ctx context.Context) error {
				fmt.Println("working")
				return untilDone(ctx)
			})
			return nil
		})
	}
	os.Exit(m.Run())
}

// TestProcess runs a real process and ends it with each of the stop signals.
func TestProcess(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "--name=process", "--metrics-address=127.0.0.1:0")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || strings.TrimSpace(line) != "working" {
				t.Fatalf("read %q: %v", line, err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					t.Fatalf("exit code %d after %s, want 0", exit.ExitCode(), sig)
				}
				t.Fatal(err)
			}
		})
	}
}

// TestHelpSaysWhatTheProgramIs, before the flags.
func TestHelpSaysWhatTheProgramIs(t *testing.T) {
	var out bytes.Buffer
	in := invocation{name: "svc", purpose: "svc is a test.", args: []string{"--help"}, stdout: &out, stderr: &out}
	if code := start(t.Context(), in, settings{}, nil); code != exitStopped || !strings.HasPrefix(out.String(), "svc is a test.\n\nUsage of svc:\n") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}
