package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/internal/journaltest"
)

const (
	bootBefore = "11111111-0000-4000-8000-000000000001"
	bootAfter  = "22222222-0000-4000-8000-000000000002"
)

// newJournalProcess is the program on a real journal.
func newJournalProcess(t *testing.T) (*process, *journaltest.Journal) {
	t.Helper()
	p := newProcess(t)
	j := journaltest.At(t, filepath.Join(p.dir, "journal"))
	p.writeFile("boot_id", bootBefore)
	p.extra = []string{"--every-event", "--source=journal", "--log-path=" + j.Dir, "--journalctl=" + journaltest.Journalctl(t)}
	return p, j
}

// appendXIDs adds count lines with an XID to the journal, among others.
func (p *process) appendXIDs(j *journaltest.Journal, boot string, count int) {
	p.t.Helper()
	var texts []string
	for range count {
		p.written++
		texts = append(texts, "eth0: link up", fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 79, pid=%d, fallen", p.written))
	}
	j.Kernel(boot, texts...)
}

// TestKillsOnAJournalLoseAndDoubleNothing kills the program at any moment while
// the journal grows and is rotated, and at the end reboots the node.
func TestKillsOnAJournalLoseAndDoubleNothing(t *testing.T) {
	p, j := newJournalProcess(t)
	for round := range 12 {
		acknowledged := len(p.connector.Distinct(t))
		p.start()
		for range 2 {
			p.appendXIDs(j, bootBefore, 1+rand.IntN(40))
			if round%3 == 1 {
				j.Rotate()
			}
		}
		enough := acknowledged + rand.IntN(p.written-acknowledged+1)
		if round%5 != 0 {
			p.connector.Await(t, "some lines", func(events []*protos.HealthEvent) bool { return len(events) >= enough })
		}
		p.kill()
	}
	p.appendXIDs(j, bootBefore, 3) // the unread end of the boot
	j.Kernel(bootAfter, "Linux version 6.1")
	p.writeFile("boot_id", bootAfter)
	p.start()
	p.check(3)
	for _, e := range p.connector.Distinct(t) {
		want := bootBefore
		if e.IsHealthy {
			want = bootAfter
		}
		if e.Metadata["bootID"] != want {
			t.Errorf("event %s is of boot %s, want %s", e.Message, e.Metadata["bootID"], want)
		}
	}
	p.kill()
	p.alone(j.Dir)
}

// alone waits until no process names the folder: a journalctl must not outlive
// the program, however that died.
func (p *process) alone(dir string) {
	p.t.Helper()
	deadline := time.After(2 * time.Minute)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			p.t.Fatal(err)
		}
		var left []string
		for _, f := range files {
			if args, err := os.ReadFile(f); err == nil && bytes.Contains(args, []byte("--directory="+dir)) {
				left = append(left, string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
			}
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			p.t.Fatalf("still running: %q", left)
		}
	}
}
