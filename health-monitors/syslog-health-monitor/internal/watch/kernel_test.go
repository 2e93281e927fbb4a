package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// TestARealKernelQuotesAProgram: a program without any right crashes whose process is
// called kernel and whose file is named like an XID; the kernel of this machine writes
// both into its log, and no fault follows.
func TestARealKernelQuotesAProgram(t *testing.T) {
	if trace, err := os.ReadFile("/proc/sys/debug/exception-trace"); err != nil || strings.TrimSpace(string(trace)) == "0" {
		t.Skip("this kernel does not log the crashes of programs")
	}
	log, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("the kernel's log cannot be read here: %v", err)
	}
	defer log.Close()
	n := newNode(t)
	n.start()
	n.passes()
	for name, before := range map[string]string{"in one line": "", "in a line of its own": "a\n"} {
		t.Run(name, func(t *testing.T) {
			id := fmt.Sprintf("pid=%d%d", os.Getpid(), len(before))
			text := crashes(t, log, before+"NVRM: Xid (PCI:0000:3b:00): 79, "+id+", GPU has fallen off the bus.", id)
			if !strings.HasPrefix(text, "kernel[") {
				t.Fatalf("the kernel wrote %q", text)
			}
			forged(t, n, text)
		})
	}
}

// crashes makes a program of that file name crash until the kernel's log reports it: the
// kernel leaves some out when many crash.
func crashes(t *testing.T, log *os.File, file, id string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), crashing(), 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "kernel")
	if err := os.Symlink(file, name); err != nil {
		t.Fatal(err)
	}
	record := make([]byte, 8<<10)
	for limit := time.Now().Add(2 * time.Minute); time.Now().Before(limit); {
		var exit *exec.ExitError
		if err := exec.CommandContext(t.Context(), name).Run(); !errors.As(err, &exit) {
			t.Fatalf("the program did not crash: %v", err)
		}
		if err := log.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		for {
			size, err := log.Read(record)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if errors.Is(err, syscall.EPIPE) { // overwritten; the next one is read
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if r, err := kernellog.ParseRecord(record[:size]); err == nil && strings.Contains(r.Text, id) {
				return r.Text
			}
		}
	}
	t.Fatal("the kernel's log does not tell of the crash")
	return ""
}

// crashing is a program for amd64 and arm64 that writes to address 0.
func crashing() []byte {
	const base, entry = 0x400000, 0x78
	machine, code := uint16(62), []byte{0x31, 0xc0, 0x89, 0x00} // xor eax, eax; mov [rax], eax
	if runtime.GOARCH == "arm64" {
		machine, code = 183, []byte{0x00, 0x00, 0x80, 0xd2, 0x00, 0x00, 0x00, 0xb9} // mov x0, #0; str w0, [x0]
	}
	header := struct {
		Ident                             [16]byte
		Type, Machine                     uint16
		Version                           uint32
		Entry, Program, Section           uint64
		Flags                             uint32
		Size, ProgramSize, ProgramCount   uint16
		SectionSize, SectionCount, String uint16
		Kind, Rights                      uint32
		Offset, Virtual, Physical         uint64
		FileSize, MemorySize, Align       uint64
	}{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: 2, Machine: machine, Version: 1, Entry: base + entry, Program: 64,
		Size: 64, ProgramSize: 56, ProgramCount: 1, Kind: 1, Rights: 5, Virtual: base, Physical: base,
		FileSize: entry + uint64(len(code)), MemorySize: entry + uint64(len(code)), Align: 0x1000,
	}
	out, err := binary.Append(nil, binary.LittleEndian, header)
	if err != nil {
		panic(err) // the header has fixed sizes
	}
	return append(out, code...)
}
