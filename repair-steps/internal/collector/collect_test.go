package collector

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// node is a host in temporary folders, with tools that are shell scripts.
type node struct {
	t    *testing.T
	host string
	bin  string
	Collector
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, host: t.TempDir(), bin: t.TempDir()}
	c := Default()
	c.Node, c.HostRoot, c.ToolRoots, c.WorkDir = "gpu-1", n.host, nil, t.TempDir()
	c.Units, c.Files = []string{"kubelet", "nvidia-*"}, []string{"var/log/*.log"}
	c.PartTimeout, c.BugReportTimeout, c.Timeout = 3*time.Minute, 3*time.Minute, 10*time.Minute
	n.Collector = Collector{Config: c, Path: n.bin, Version: "v1", Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
	n.tool("journalctl", `echo "journal $*"`)
	n.tool("nvidia-smi", `echo "smi $*"`)
	n.tool("nvidia-bug-report.sh", `echo "report $1" | gzip > "$2.gz"`)
	n.file("var/log/kern.log", "NVRM: Xid 79\n")
	return n
}

func (n *node) tool(name, script string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) file(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.host, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// unpack gives the files of an archive, and its manifest.
func unpack(t *testing.T, archive []byte) (map[string]string, Manifest) {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files, m := map[string]string{}, Manifest{}
	for from := tar.NewReader(unzipped); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
	if err := json.Unmarshal([]byte(files[ManifestName]), &m); err != nil {
		t.Fatalf("%s: %v", files[ManifestName], err)
	}
	delete(files, ManifestName)
	return files, m
}

// collected collects and unpacks, and looks that nothing else is left on the disk.
func (n *node) collected() (map[string]string, map[string]Entry, Manifest) {
	n.t.Helper()
	path, reported, err := n.Collect(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	files, m := unpack(n.t, text)
	entries := map[string]Entry{}
	sum := int64(0)
	for _, e := range m.Parts {
		entries[e.Name] = e
		sum += e.Bytes
		if int64(len(files[e.Name])) != e.Bytes {
			n.t.Errorf("%s has %d bytes, and the manifest says %d", e.Name, len(files[e.Name]), e.Bytes)
		}
	}
	left, err := os.ReadDir(n.WorkDir)
	if err != nil || len(left) != 1 || sum != m.Bytes || m.Bytes > n.MaxTotal || len(reported.Parts) != len(m.Parts) {
		n.t.Errorf("left %v, %v; %d bytes, the manifest says %d of %d", left, err, sum, m.Bytes, n.MaxTotal)
	}
	return files, entries, m
}

// TestEverythingIsCollected on a node that has it all.
func TestEverythingIsCollected(t *testing.T) {
	n := newNode(t)
	files, _, m := n.collected()
	for name, begin := range map[string]string{
		"journal/kernel.log":     "journal --root=" + n.host + " --no-pager --quiet --output=short-precise --utc --lines=131072 --dmesg\n",
		"journal/kubelet.log":    "journal --root=" + n.host + " --no-pager --quiet --output=short-precise --utc --lines=131072 --since=-86400s --unit=kubelet\n",
		"journal/nvidia-_.log":   "journal --root=" + n.host + " --no-pager --quiet --output=short-precise --utc --lines=131072 --since=-86400s --unit=nvidia-*\n",
		"nvidia-smi.txt":         "smi -q\n",
		"files/var/log/kern.log": "NVRM: Xid 79\n",
		"nvidia-bug-report.log":  "report --output-file\n",
	} {
		if files[name] != begin {
			t.Errorf("%s is %q", name, files[name])
		}
	}
	if len(files) != 6 || m.Counts()[Collected] != 6 || m.Node != "gpu-1" || m.Version != "v1" || *m.Parts[0].Exit != 0 || len(m.Parts[0].Command) != 8 {
		t.Errorf("%d files, %+v", len(files), m)
	}
}

// TestAPartThatFailsCostsNoOther.
func TestAPartThatFailsCostsNoOther(t *testing.T) {
	for name, x := range map[string]struct {
		spoil func(n *node)
		part  string
		want  Entry // State, Bytes; Error is a part of the text
		exit  int   // -1: none
	}{
		"a tool that fails":        {func(n *node) { n.tool("nvidia-smi", `echo half; echo "no device, token=hunter2" >&2; exit 9`) }, "nvidia-smi.txt", Entry{State: Failed, Bytes: 5, Error: "status 9: no device, token=[redacted]"}, 9},
		"a tool that says nothing": {func(n *node) { n.tool("nvidia-smi", `exit 0`) }, "nvidia-smi.txt", Entry{State: Collected}, 0},
		"no tool":                  {func(n *node) { _ = os.Remove(filepath.Join(n.bin, "nvidia-smi")) }, "nvidia-smi.txt", Entry{State: Missing, Error: "finding nvidia-smi"}, -1},
		"what is no program":       {func(n *node) { _ = os.Chmod(filepath.Join(n.bin, "nvidia-smi"), 0o600) }, "nvidia-smi.txt", Entry{State: Missing}, -1},
		"a tool of another machine": {func(n *node) {
			_ = os.WriteFile(filepath.Join(n.bin, "nvidia-smi"), []byte("\x7fELF"), 0o700)
		}, "nvidia-smi.txt", Entry{State: Failed, Error: "starting the command"}, -1},
		"a tool that kills itself": {func(n *node) { n.tool("nvidia-smi", `echo x; kill -9 $$`) }, "nvidia-smi.txt", Entry{State: Failed, Bytes: 2, Error: "killed"}, -1},
		"a report that is none":    {func(n *node) { n.tool("nvidia-bug-report.sh", `echo no > "$2.gz"`) }, "nvidia-bug-report.log", Entry{State: Failed, Error: "decompressing the report"}, 0},
		"a report not packed":      {func(n *node) { n.tool("nvidia-bug-report.sh", `echo plain > "$2"`) }, "nvidia-bug-report.log", Entry{State: Collected, Bytes: 6}, 0},
		"no report":                {func(n *node) { n.tool("nvidia-bug-report.sh", `exit 1`) }, "nvidia-bug-report.log", Entry{State: Failed, Error: "status 1"}, 1},
		"a report that is a link": {func(n *node) {
			n.tool("nvidia-bug-report.sh", `ln -s /etc/passwd "$2"`)
		}, "nvidia-bug-report.log", Entry{State: Failed, Error: "reading the report"}, 0},
		"a link out of the host": {func(n *node) {
			_ = os.Remove(filepath.Join(n.host, "var/log/kern.log"))
			_ = os.Symlink("/etc/passwd", filepath.Join(n.host, "var/log/kern.log"))
		}, "files/var/log/kern.log", Entry{State: Failed, Error: "opening the file"}, -1},
		"a pipe": {func(n *node) {
			_ = os.Remove(filepath.Join(n.host, "var/log/kern.log"))
			_ = syscall.Mkfifo(filepath.Join(n.host, "var/log/kern.log"), 0o600)
		}, "files/var/log/kern.log", Entry{State: Failed, Error: "opening the file: not a regular file"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			x.spoil(n)
			_, entries, m := n.collected()
			e := entries[x.part]
			if e.State != x.want.State || e.Bytes != x.want.Bytes || !strings.Contains(e.Error, x.want.Error) || (e.Exit == nil) != (x.exit < 0) || e.Exit != nil && *e.Exit != x.exit {
				t.Errorf("%+v", e)
			}
			others := 5
			if x.want.State == Collected {
				others = 6
			}
			if m.Counts()[Collected] != others {
				t.Errorf("of the others: %+v", m.Counts())
			}
		})
	}
}

// TestAReportThatHangsIsKilled, with what the tool has started.
func TestAReportThatHangsIsKilled(t *testing.T) {
	n := newNode(t)
	n.BugReportTimeout = time.Second
	n.tool("nvidia-bug-report.sh", `sleep 10000 & sleep 10000`)
	_, entries, m := n.collected()
	e := entries["nvidia-bug-report.log"]
	if e.State != Failed || !strings.Contains(e.Error, "the command timed out and was killed") || e.Exit != nil || m.Counts()[Collected] != 5 {
		t.Errorf("%+v", e)
	}
}

// endsAt ends a context when it has been written to.
type endsAt struct {
	buffer bytes.Buffer // not embedded: a copy would fill it by its ReadFrom
	end    context.CancelFunc
}

func (e *endsAt) Write(p []byte) (int, error) {
	defer e.end()
	return e.buffer.Write(p)
}

// TestOutputOfKilledToolIsKept: the output of a killed tool stays in the archive.
func TestOutputOfKilledToolIsKept(t *testing.T) {
	n := newNode(t)
	n.tool("nvidia-smi", `echo begin; echo why >&2; sleep 10000`)
	ctx, cancel := context.WithCancel(t.Context())
	out := &endsAt{end: cancel}
	exit, err := run(ctx, tool{path: filepath.Join(n.bin, "nvidia-smi")}, nil, out, clock.RealClock{})
	if exit != nil || err == nil || !strings.Contains(err.Error(), "was killed") || !strings.HasPrefix(out.buffer.String(), "begin\n") {
		t.Errorf("%v, %v, %q", exit, err, out.buffer.String())
	}
}

// TestAToolThatCannotBeKilledIsLeft: one that hangs in the driver.
func TestAToolThatCannotBeKilledIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		exit, err := outcome(ctx, make(chan error), &headBuffer{}, clock.RealClock{})
		if exit != nil || err == nil || !strings.Contains(err.Error(), "cannot be killed") || time.Since(begin) != time.Minute+killGrace {
			t.Errorf("%v, %v after %s", exit, err, time.Since(begin))
		}
	})
}

// TestAllPartsTogetherHaveALimit: the manifest lists what is not collected because of it.
func TestAllPartsTogetherHaveALimit(t *testing.T) {
	n := newNode(t)
	n.Timeout = time.Second
	n.tool("journalctl", `sleep 10000`)
	_, entries, m := n.collected()
	if m.Counts()[LeftOut] != 5 || m.Counts()[Failed] != 1 || !strings.Contains(entries["journal/kubelet.log"].Error, "--timeout") {
		t.Errorf("%+v", m.Parts)
	}
}

// TestInterrupted: what is not whole is no archive.
func TestInterrupted(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := n.Collect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestSizesAreBounded: of a part the newest is kept, of all parts the first.
func TestSizesAreBounded(t *testing.T) {
	n := newNode(t)
	n.MaxPart, n.MaxTotal = 1<<20, 2<<20+1<<19
	n.tool("journalctl", `case "$*" in *kubelet*|*dmesg*) i=0; line=$(printf '%01000d' 7); while [ $i -lt 4000 ]; do echo "$i $line"; i=$((i+1)); done;; *) echo little;; esac`)
	n.file("var/log/kern.log", strings.Repeat(strings.Repeat("k", 99)+"\n", 30_000))
	n.file("var/log/later.log", "later\n")
	files, entries, m := n.collected()
	for _, name := range []string{"journal/kernel.log", "journal/kubelet.log"} {
		text := files[name]
		if e := entries[name]; !e.Truncated || e.State != Collected || e.Bytes > n.MaxPart || e.Bytes < n.MaxPart-3000 || !strings.HasPrefix(text[strings.LastIndex(text[:len(text)-1], "\n")+1:], "3999 ") {
			t.Errorf("%s: %+v, ends with %q", name, e, text[len(text)-20:])
		}
		if first, _, _ := strings.Cut(text, "\n"); !strings.HasSuffix(first, strings.Repeat("0", 99)+"7") || len(first) < 1002 {
			t.Errorf("%s begins within a line: %q", name, first)
		}
	}
	kern := files["files/var/log/kern.log"]
	if e := entries["files/var/log/kern.log"]; !e.Truncated || e.Bytes < 1<<18 || strings.ReplaceAll(kern, strings.Repeat("k", 99)+"\n", "") != "" {
		t.Errorf("%+v", e)
	}
	last := entries["nvidia-bug-report.log"]
	if m.Bytes < n.MaxTotal-200 || last.State != LeftOut && last.Bytes > 100 {
		t.Errorf("%d bytes, %+v", m.Bytes, last)
	}
}

// TestTruncationIsReported: the manifest reports a truncated part.
func TestTruncationIsReported(t *testing.T) {
	n := newNode(t)
	n.MaxPart, n.MaxTotal = 1<<20, 1<<20
	n.tool("journalctl", `line=$(printf '%01023d' 7); i=0; while [ $i -lt 1024 ]; do echo "$line"; i=$((i+1)); done`)
	_, entries, m := n.collected()
	if m.Bytes != 1<<20 || m.Counts()[LeftOut] != 5 || !strings.Contains(entries["nvidia-smi.txt"].Error, "--max-total-bytes") || entries["journal/kernel.log"].Truncated {
		t.Errorf("%d bytes, %+v", m.Bytes, m.Parts)
	}
}

// TestSecretsDoNotComeOut, of any part, also where it is cut.
func TestSecretsDoNotComeOut(t *testing.T) {
	const secret = "hunter2hunter2"
	n := newNode(t)
	n.MaxPart, n.MaxTotal = 1<<20, 8<<20
	n.tool("journalctl", `echo "pulling https://user:`+secret+`@registry.example.com/x"; echo "Authorization: Bearer `+secret+`" | tr -d '\n'`)
	n.tool("nvidia-bug-report.sh", `echo "password=`+secret+`" | gzip > "$2.gz"`)
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat(secret+"\n", 50) + "-----END PRIVATE KEY-----\n"
	for i := range 20 { // the cut is in each place of the key
		n.file(fmt.Sprintf("var/log/%d.log", i), "begin\n"+key+strings.Repeat("x", 1<<20-i*50)+"\n")
	}
	colors := strings.Repeat(strings.Repeat("\x1b[31m", 1000)+"x\n", 200) // nearly nothing is left of it
	for i := range 10 {                                                   // what is read begins in each place of the key
		pad := strings.Repeat("\x1b[31m\n", (1<<20+lead-len(colors)-i*80)/6)
		n.file(fmt.Sprintf("var/log/lead%d.log", i), "begin\n"+key+"token: |\n"+strings.Repeat("  "+secret+"\n", 50)+pad+colors)
	}
	n.file("var/log/pod.log", "\x1b[36mpassword\x1b[0m="+secret+"\n- name: DB_PASSWORD\n  value: "+secret+
		"\n2025-11-23T17:21:39Z stdout P token="+secret+"\n2025-11-23T17:21:39Z stdout F "+secret+"\n")
	n.MaxTotal = 64 << 20
	files, entries, _ := n.collected()
	for name, text := range files {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret", name)
		}
	}
	if e := entries["journal/kernel.log"]; e.Redactions != 2 || e.State != Collected {
		t.Errorf("%+v", e)
	}
}

// TestFilesAreBounded in number.
func TestFilesAreBounded(t *testing.T) {
	n := newNode(t)
	for i := range maxFiles + 4 {
		n.file(fmt.Sprintf("var/log/%03d.log", i), "x\n")
	}
	_, _, m := n.collected()
	if len(m.Parts) != maxFiles+5 || m.FilesLeftOut != 5 {
		t.Errorf("%d parts, %d files left out", len(m.Parts), m.FilesLeftOut)
	}
}

// TestNoArchive: what is an error.
func TestNoArchive(t *testing.T) {
	n := newNode(t)
	n.HostRoot = "/nowhere"
	if _, _, err := n.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "--host-root") {
		t.Errorf("no host: %v", err)
	}
	n = newNode(t)
	n.WorkDir = "/nowhere"
	if _, _, err := n.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "creating the archive") {
		t.Errorf("no work folder: %v", err)
	}
}
