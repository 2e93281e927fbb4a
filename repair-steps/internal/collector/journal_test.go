package collector

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// remote writes journals; Debian's package systemd-journal-remote has it.
const remote = "/usr/lib/systemd/systemd-journal-remote"

// TestARealJournal is read by systemd's own journalctl: of the kernel the newest boot, of
// units what is not too old.
func TestARealJournal(t *testing.T) {
	reader, err := exec.LookPath("journalctl")
	if err != nil {
		t.Skip("no journalctl on this machine")
	}
	if _, err := os.Stat(remote); err != nil {
		t.Skip("no systemd-journal-remote on this machine")
	}
	n := newNode(t)
	n.Path = filepath.Dir(reader)
	n.SMI, n.BugReport, n.Files = false, false, nil
	const machine = "0123456789abcdef0123456789abcdef"
	var export strings.Builder
	entry := func(age time.Duration, boot, transport, unit, message string) {
		fmt.Fprintf(&export, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n_MACHINE_ID=%s\n_TRANSPORT=%s\nSYSLOG_IDENTIFIER=x\n_SYSTEMD_UNIT=%s\nMESSAGE=%s\n\n",
			time.Now().Add(-age).UnixMicro(), (100*time.Hour - age).Microseconds(), strings.Repeat(boot, 32), machine, transport, unit, message)
	}
	entry(50*time.Hour, "1", "journal", "kubelet.service", "too old")
	entry(5*time.Hour, "1", "kernel", "", "an earlier boot")
	entry(4*time.Hour, "2", "kernel", "", "NVRM: Xid 79")
	entry(3*time.Hour, "2", "journal", "kubelet.service", "pulled with token=hunter2")
	entry(2*time.Hour, "2", "journal", "nvidia-persistenced.service", "started")
	dir := filepath.Join(n.host, "var/log/journal", machine)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write := exec.CommandContext(t.Context(), remote, "-o", filepath.Join(dir, "system.journal"), "-")
	write.Stdin = strings.NewReader(export.String())
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("writing a journal: %v\n%s", err, out)
	}
	files, _, m := n.collected()
	for name, want := range map[string]string{
		"journal/kernel.log": "x: NVRM: Xid 79\n", "journal/kubelet.log": "x: pulled with token=[redacted]\n", "journal/nvidia-_.log": "x: started\n",
	} {
		if got := files[name]; !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s is %q; %+v", name, got, m.Parts)
		}
	}
}
