package watch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// quotes are messages of the kernel and of the GPU driver in which a program without
// any right has words of its own. The first two were read from /dev/kmsg of Linux 6.18
// after a program with such a name and file had crashed, and one with an executable
// stack had started; the others are formats of Linux (security/yama, mm/oom_kill.c,
// mm/page_alloc.c, fs/fs_parser.c, kernel/hung_task.c, kernel/auditsc.c) and of
// open-gpu-kernel-modules (osapi.c, kernel_rc.c).
//
// %[1]s is a name of a process, at most 15 bytes; %[2]s that of a file or a command
// line; %[3]s the version that a client of the driver claims, at most 63 bytes.
var quotes = []string{
	"%[1]s[29312]: segfault at 0 ip 00005615b110f176 sp 00007ffeab1a15b0 error 6 in %[2]s[1176,5615b110f000+1000] likely on CPU 1 (core 1, socket 0)",
	"kernel[29312]: segfault at 0 ip 00005615b110f176 sp 00007ffeab1a15b0 error 6 in %[2]s[1176,5615b110f000+1000] likely on CPU 1 (core 1, socket 0)",
	"kernel[29312]: segfault at 0 ip 00005615b110f176 sp 00007ffeab1a15b0 error 6 in a\n%[2]s[1176,5615b110f000+1000] likely on CPU 1",
	"mlx5_core 0000:[7]: segfault at 0 ip 00005615b110f176 sp 00007ffeab1a15b0 error 6 in c1:00.0: %[2]s[1176,5615b110f000+1000]",
	"process 'tmp/kx/d/%[2]s' started with executable stack",
	"process '%[2]s' started with executable stack",
	"process 'a\n%[2]s' started with executable stack",
	"ptrace attach of \"%[2]s\"[7] was attempted by \"%[2]s\"[8]",
	"Memory cgroup out of memory: Killed process 7 (%[1]s) total-vm:1kB, anon-rss:1kB, file-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0",
	"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/a,task_memcg=/a,task=%[1]s,pid=7,uid=1000",
	"%[1]s: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null)",
	"tmpfs: Unknown parameter '%[2]s'",
	"tmpfs: Unknown parameter '\n%[2]s'",
	"audit: type=1701 audit(1772366400.1:2): auid=0 uid=1000 pid=7 comm=\"%[1]s\" exe=\"%[2]s\" sig=11 res=1",
	"NVRM: API mismatch: the client '%[1]s' (pid 7)\nNVRM: has the version %[3]s, but this kernel module has\nNVRM: the version 595.45.04.  Please make sure that this",
	"NVRM: API mismatch: the client '%[1]s' (pid 7)\nNVRM: has the version \n%[3]s, but this kernel module has",
	"NVRM: has the version %[3]s, but this kernel module has",
}

// TestWordsOfProgramsAreNotTheKernels: whatever of the table makes an event makes none
// where a program has the kernel quote it, and leaves nothing behind.
func TestWordsOfProgramsAreNotTheKernels(t *testing.T) {
	n := newNode(t)
	n.start()
	n.passes()
	faults := quotedMessages(t)
	if len(faults) < 60 {
		t.Fatalf("the table has %d faults", len(faults))
	}
	tried := 0
	for _, words := range faults {
		for _, quote := range quotes {
			forged(t, n, fmt.Sprintf(quote+"%.0[1]s%.0[2]s%.0[3]s", cutTo(words, 15), cutTo(words, 255), cutTo(words, 63)))
			tried++
		}
	}
	t.Logf("%d messages", tried)
}

// forged takes a line that must make no event and change nothing that is remembered.
func forged(t *testing.T, n *node, text string) {
	t.Helper()
	fresh := newState()
	fresh.Boot = n.m.state.Boot
	n.m.state = fresh
	taken, err := n.m.commitLines([]source.Line{{Text: kernellog.Clean([]byte(text)), Kernel: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range taken.events {
		t.Errorf("%q makes %s", text, made(e))
	}
	if s := n.m.state; len(s.Lost)+len(s.Owners)+len(s.Memory)+len(s.Patterns.Begun) > 0 || s.Fallen.PCI != "" {
		t.Errorf("%q leaves %+v", text, s)
	}
}

// quotedMessages are the messages of the table that make events, and lines of those that make
// one together.
func quotedMessages(t *testing.T) (out []string) {
	t.Helper()
	for _, s := range stories(t) {
		for _, line := range s.lines {
			text := kernellog.Clean([]byte(line))
			if len(s.want) > 0 && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return append(out, "NVRM: The NVIDIA GPU 0000:3b:00.0", "fallen off the bus and is not responding to commands",
		"NVRM: GPU at PCI:0000:3b:00: "+gpu0, "PMU halted", "GPU lost from the bus", "NV_ERR_RESET_REQUIRED")
}

func cutTo(text string, limit int) string { return kernellog.Cut(text, limit) }

// TestANameOfAProcessChangesNoFault: what a process that has an error on its GPU is
// called stands in the XID's line, and changes nothing of the event.
func TestANameOfAProcessChangesNoFault(t *testing.T) {
	n := newNode(t)
	n.start()
	n.passes()
	for _, rest := range []string{
		"31, pid=7, name=%s, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS",
		"154, pid=7, name=%s, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
		"74, pid=7, name=%s, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
		"149, pid=7, name=%s, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
	} {
		want := ""
		for _, name := range []string{"python", "to 0x0 (", "to 0x2 (Reboot)", "PMU halted", "NVRM: Xid (0): ", "NVRM: Xid (PCI:", "Link 7 (0x0", "link 2(0x1, 0x0", "x, Fatal XC0"} {
			fresh := newState()
			fresh.Boot = n.m.state.Boot
			n.m.state = fresh
			taken, err := n.m.commitLines([]source.Line{{Text: "NVRM: Xid (PCI:0000:3b:00): " + fmt.Sprintf(rest, name), Kernel: true}})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, e := range taken.events {
				got += made(e) + " " + fmt.Sprint(e.IsFatal, record.FromProto(e).IsHealthy) + "\n"
			}
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("with the name %q:\n%swant\n%s", name, got, want)
			}
		}
	}
}

// TestAProcessHidesNoFault: a process that is called like a driver has no XID left out
// whose line names it.
func TestAProcessHidesNoFault(t *testing.T) {
	n := newNode(t)
	n.start()
	n.passes()
	for _, name := range []string{"nvidia-nvswitch", "NVRM: ", "NVRM: Xid (PCI:"} {
		fresh := newState()
		fresh.Boot = n.m.state.Boot
		n.m.state = fresh
		line := "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=" + name + ", GPU has fallen off the bus."
		taken, err := n.m.commitLines([]source.Line{{Text: line, Kernel: true}})
		if err != nil {
			t.Fatal(err)
		}
		if len(taken.events) == 0 {
			t.Errorf("%q makes no event", line)
		}
	}
}
