package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/repair-steps/internal/redact"
)

const (
	// killGrace is how long a killed process is waited for. One that hangs in the
	// driver can't be killed at all, and is left.
	killGrace = 5 * time.Second
	// maxErrorBytes is how many bytes of a tool's error output are reported.
	maxErrorBytes = 2 << 10
)

// past is a time that was.
var past = time.Unix(1, 0)

// run runs a tool with its output to out until it ends or the context does, and kills
// it then with all that it has started. exit is nil if it did not end by itself.
func run(ctx context.Context, t tool, args []string, out io.Writer, c clock.Clock) (exit *int, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe: %w", err)
	}
	defer read.Close()
	words := &headBuffer{}
	cmd := exec.Command(t.path, args...) //nolint:noctx // it is killed below, with its children, and not waited for for ever
	// Nothing of our environment, such as credentials of the upload.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/tmp"}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = "/", write, words, killGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: t.root}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return nil, fmt.Errorf("starting the command: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := context.AfterFunc(ctx, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = read.SetReadDeadline(past)
	})
	defer stop()
	_, err = io.Copy(out, read)
	if err != nil && ctx.Err() == nil { // nobody takes its output
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return nil, fmt.Errorf("storing the output: %w", err)
	}
	return outcome(ctx, ended, words, c)
}

// outcome waits for the process's end, and a little longer when it is late.
func outcome(ctx context.Context, ended <-chan error, words *headBuffer, c clock.Clock) (*int, error) {
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-c.After(killGrace):
			return nil, errors.New("the command timed out and cannot be killed because it hangs in the kernel")
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the command timed out and was killed%s", words.summary())
	}
	if err == nil {
		return new(int), nil
	}
	end, ok := errors.AsType[*exec.ExitError](err)
	if !ok || end.ExitCode() < 0 {
		return nil, fmt.Errorf("%w%s", err, words.summary())
	}
	code := end.ExitCode()
	return &code, fmt.Errorf("the command exited with status %d%s", code, words.summary())
}

// headBuffer keeps the beginning of a process's error output.
type headBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write never fails: what is too much is dropped.
func (h *headBuffer) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buffer.Write(p[:min(len(p), maxErrorBytes-h.buffer.Len())])
	return len(p), nil
}

// summary is the error output, without secrets, as the end of a sentence.
func (h *headBuffer) summary() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	output := h.buffer.Bytes()
	if len(output) == maxErrorBytes { // what was cut off in the middle may be half of a secret
		output = output[:bytes.LastIndexAny(output, " \t\n")+1]
	}
	text := redact.Text(string(bytes.ToValidUTF8(bytes.TrimSpace(output), []byte("?"))))
	if text == "" {
		return ""
	}
	return ": " + text
}

// tool is a program that was found.
type tool struct {
	// path of the program, as the process that runs it sees it.
	path string
	// root is the folder that the process takes for /; empty is our own.
	root string
}

// folders of a root in which programs are.
var folders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// find looks for a program: beside ours, in the folders of path, and then in the roots
// of the host, from where it is run with that root for its own.
func find(name, path string, roots []string) (tool, bool) {
	for _, dir := range filepath.SplitList(path) {
		if dir != "" && executable(os.Stat(filepath.Join(dir, name))) {
			return tool{path: filepath.Join(dir, name)}, true
		}
	}
	for _, root := range roots {
		for _, dir := range folders {
			info, err := os.Lstat(filepath.Join(root, dir, name))
			link := err == nil && info.Mode().Type() == os.ModeSymlink // to be followed in that root, not in ours
			if link || executable(info, err) {
				return tool{path: filepath.Join(dir, name), root: root}, true
			}
		}
	}
	return tool{}, false
}

func executable(info os.FileInfo, err error) bool {
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// pathInTool is how the tool sees a path of this process; ok is false if it can't.
func (t tool) pathInTool(path string) (string, bool) {
	if t.root == "" {
		return path, true
	}
	inside, ok := strings.CutPrefix(filepath.Clean(path), filepath.Clean(t.root))
	if !ok || inside != "" && inside[0] != '/' {
		return "", false
	}
	return "/" + strings.TrimPrefix(inside, "/"), true
}

// command is the tool with its arguments, as the manifest shows it.
func (t tool) command(args []string) []string {
	if t.root == "" {
		return slices.Concat([]string{t.path}, args)
	}
	return slices.Concat([]string{"chroot", t.root, t.path}, args)
}
