package main_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-steps/internal/collector"
)

// binary builds the program, once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "log-collector-")
	if err != nil {
		return "", err
	}
	return testkit.Binary(dir, ".")
})

// place is a node's folders, with tools that are shell scripts.
type place struct{ host, bin, work, password string }

func newPlace(t *testing.T, tools map[string]string) place {
	t.Helper()
	p := place{t.TempDir(), t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "termination-log")}
	for name, script := range tools {
		if err := os.WriteFile(filepath.Join(p.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(p.password, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// command is a run of the program there.
func (p place) command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--host-root=" + p.host, "--tool-roots=" + p.host, "--work-dir=" + p.work, "--termination-log=" + p.password}, args...)...)
	out := &bytes.Buffer{}
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"PATH=" + p.bin, "NODE_NAME=gpu-1"}, out, out
	return cmd, out
}

func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	end, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return end.ExitCode()
}

// manifest reads an archive to its end.
func manifest(t *testing.T, archive []byte) collector.Manifest {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	var m collector.Manifest
	for from := tar.NewReader(unzipped); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return m
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(from)
		if err != nil || h.Name == collector.ManifestName && json.Unmarshal(text, &m) != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
	}
}

// TestCommandLine: the help is printed, and an error names the flag that is wrong.
func TestCommandLine(t *testing.T) {
	for message, x := range map[string]struct {
		args []string
		code int
	}{
		"--nvidia-bug-report\n": {[]string{"--help"}, 0},
		"log-collector ":        {[]string{"--version"}, 0},
		"--upload-url":          {nil, 2},
		"-uplaod-url":           {[]string{"--uplaod-url=x"}, 2},
		"--max-part-bytes":      {[]string{"--upload-url=http://example.com/x", "--max-part-bytes=5"}, 2},
		"-since":                {[]string{"--since=yesterday"}, 2},
		"is valid":              {[]string{"--upload-url=http://example.com/x", "--check-config"}, 0},
		"--ca-file":             {[]string{"--upload-url=http://example.com/x", "--ca-file=/nowhere"}, 1},
	} {
		cmd, out := newPlace(t, nil).command(t, x.args...)
		if got := code(t, cmd.Run()); got != x.code || !strings.Contains(out.String(), message) {
			t.Errorf("%v: exit code %d, want %d and %q in:\n%s", x.args, got, x.code, message, out)
		}
	}
}

// TestKilledInMidUpload: run again, there is one object, and it is whole.
func TestKilledInMidUpload(t *testing.T) {
	var (
		mu      sync.Mutex
		objects = map[string][]byte{}
		first   *exec.Cmd
		killed  = make(chan struct{})
	)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-killed:
		default:
			_, _ = io.CopyN(io.Discard, r.Body, 10_000)
			mu.Lock()
			_ = first.Process.Kill()
			mu.Unlock()
			close(killed)
		}
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && int64(len(body)) == r.ContentLength {
			objects[r.Method+" "+r.URL.Path] = body
		}
	}))
	defer s.Close()
	p := newPlace(t, map[string]string{"journalctl": "exec head -c 1000000 /dev/urandom | base64", "nvidia-smi": "echo eight GPUs"})
	url := "--upload-url=" + s.URL + "/logs/gpu-1/run-collect.tar.gz"
	mu.Lock() // for the race detector, which does not know that the process asks later
	first, _ = p.command(t, url)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	mu.Unlock()
	if got := code(t, first.Wait()); got != -1 {
		t.Fatalf("exit code %d, and it should have been killed", got)
	}
	second, out := p.command(t, url)
	if got := code(t, second.Run()); got != 0 {
		t.Fatalf("exit code %d:\n%s", got, out)
	}
	mu.Lock()
	defer mu.Unlock()
	archive := objects["PUT /logs/gpu-1/run-collect.tar.gz"]
	if len(objects) != 1 || archive == nil {
		t.Fatalf("%d objects", len(objects))
	}
	if m := manifest(t, archive); m.Node != "gpu-1" || m.Bytes < 6*1_000_000 {
		t.Errorf("%+v", m)
	}
	if word, err := os.ReadFile(p.password); err != nil || !strings.Contains(string(word), "run-collect.tar.gz") || !strings.Contains(string(word), "collected") {
		t.Errorf("last word %q, %v", word, err)
	}
}

// TestAReceiverThatRefuses: the step has failed, with the reason.
func TestAReceiverThatRefuses(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	p := newPlace(t, nil)
	cmd, out := p.command(t, "--upload-url="+s.URL+"/x?sig=hunter2")
	if got := code(t, cmd.Run()); got != 1 || strings.Contains(out.String(), "hunter2") {
		t.Errorf("exit code %d:\n%s", got, out)
	}
	if word, err := os.ReadFile(p.password); err != nil || !strings.Contains(string(word), "rejected: HTTP 404") {
		t.Errorf("last word %q, %v", word, err)
	}
}

// TestStoppedWhileItCollects: what was not done is no success.
func TestStoppedWhileItCollects(t *testing.T) {
	p := newPlace(t, map[string]string{"journalctl": `kill -TERM "$PPID"; exec sleep 10000`})
	keep := t.TempDir()
	cmd, out := p.command(t, "--keep-dir="+keep, "--name=run-collect")
	if got := code(t, cmd.Run()); got != 1 || !strings.Contains(out.String(), "canceled") {
		t.Errorf("exit code %d:\n%s", got, out)
	}
	if left, err := os.ReadDir(keep); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestAToolOfTheHost runs with the host's root for its own: a program that sees nothing
// but that folder.
func TestAToolOfTheHost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change a process's root")
	}
	p := newPlace(t, nil)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(p.host, "usr/bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.host, "usr/bin/nvidia-smi"), text, 0o700); err != nil {
		t.Fatal(err)
	}
	keep := t.TempDir()
	cmd, out := p.command(t, "--keep-dir="+keep, "--name=run-collect")
	if got := code(t, cmd.Run()); got != 0 {
		t.Fatalf("exit code %d:\n%s", got, out)
	}
	archive, err := os.ReadFile(filepath.Join(keep, "nvsentinel-logs-run-collect.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	m := manifest(t, archive)
	for _, e := range m.Parts {
		if e.Name == "nvidia-smi.txt" {
			if e.Exit == nil || *e.Exit != 2 || !strings.Contains(e.Error, "flag provided but not defined: -q") || e.Command[0] != "chroot" {
				t.Errorf("%+v", e)
			}
			return
		}
	}
	t.Errorf("%+v", m)
}
