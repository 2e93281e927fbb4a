package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/internal/journaltest"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// TestTheShippedJournalctlReadsEveryPacking: what hack/journalctl.sh puts into the
// image runs where there is nothing else, and reads journals of every compression,
// in the compact form and the old one.
func TestTheShippedJournalctlReadsEveryPacking(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root folder")
	}
	root := t.TempDir()
	if out, err := exec.Command("../../../../hack/journalctl.sh", root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, packing := range []string{"ZSTD", "LZ4", "XZ", "0"} {
		for _, compact := range []string{"0", "1"} {
			t.Setenv("SYSTEMD_JOURNAL_COMPRESS", packing)
			t.Setenv("SYSTEMD_JOURNAL_COMPACT", compact)
			dir := filepath.Join("/journal", packing+compact)
			text := "NVRM: Xid (PCI:0000:3b:00): 79, " + strings.Repeat(packing, 1000)
			journaltest.At(t, filepath.Join(root, dir)).Kernel("11111111-0000-4000-8000-000000000001", text)
			s := NewJournal("/usr/bin/journalctl", dir, nil)
			s.boot = strings.ReplaceAll("11111111-0000-4000-8000-000000000001", "-", "")
			cmd := exec.Command(s.tool, s.args(false)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
			cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C"}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s, compact %s: %v\n%s", packing, compact, err, out)
			}
			e, err := kernellog.ParseEntry(out)
			if diff := cmp.Diff(text, e.Text); err != nil || diff != "" {
				t.Errorf("%s, compact %s: error %v, text (-want +got):\n%s", packing, compact, err, diff)
			}
		}
	}
}
