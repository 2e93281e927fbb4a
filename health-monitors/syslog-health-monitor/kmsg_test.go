package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvidia/nvsentinel/api/protos"
)

// ring stands in for /dev/kmsg: a pipe in packet mode, of which one read is one
// record, and which gives every reader all records from the first on.
type ring struct {
	t    *testing.T
	path string

	mu      sync.Mutex
	records []string
	more    *sync.Cond
}

func newRing(t *testing.T) *ring {
	r := &ring{t: t, path: filepath.Join(t.TempDir(), "kmsg")}
	r.more = sync.NewCond(&r.mu)
	return r
}

func (r *ring) write(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, fmt.Sprintf("3,%d,%d,-;%s\n", len(r.records), len(r.records), text))
	r.more.Broadcast()
}

// open makes the device for one reader; stop ends it.
func (r *ring) open(n int) (path string, stop func()) {
	r.t.Helper()
	path = fmt.Sprintf("%s-%d", r.path, n)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		r.t.Fatal(err)
	}
	// For reading too, so that it opens, and the writer outlives its reader.
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if _, err := unix.FcntlInt(fd, unix.F_SETFL, unix.O_DIRECT|unix.O_NONBLOCK|unix.O_RDWR); err != nil {
			r.t.Error(err)
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	stopped, done := false, make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			r.mu.Lock()
			for i >= len(r.records) && !stopped {
				r.more.Wait()
			}
			over := stopped
			var record string
			if !over {
				record = r.records[i]
			}
			r.mu.Unlock()
			if over {
				return
			}
			if _, err := f.WriteString(record); err != nil {
				if !errors.Is(err, os.ErrClosed) {
					r.t.Error(err)
				}
				return
			}
		}
	}()
	return path, func() {
		r.mu.Lock()
		stopped = true
		r.more.Broadcast()
		r.mu.Unlock()
		_ = f.Close()
		<-done
	}
}

// TestKillsAtAnyMomentLoseAndDoubleNothingOfTheRing: what the program had read
// ahead of its outbox is in the kernel's ring still.
func TestKillsAtAnyMomentLoseAndDoubleNothingOfTheRing(t *testing.T) {
	p, r := newProcess(t), newRing(t)
	for round := range 15 {
		path, stop := r.open(round)
		p.extra = []string{"--every-event", "--source=kmsg", "--log-path=" + path}
		acknowledged := len(p.connector.Distinct(t))
		p.start()
		for range 1 + rand.IntN(120) {
			p.written++
			r.write("eth0: link up")
			r.write(fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 79, pid=%d, fallen", p.written))
		}
		enough := acknowledged + rand.IntN(p.written-acknowledged+1)
		p.connector.Await(t, "some lines", func(events []*protos.HealthEvent) bool { return len(events) >= enough })
		p.kill()
		stop()
	}
	path, stop := r.open(15)
	defer stop()
	p.extra = []string{"--every-event", "--source=kmsg", "--log-path=" + path}
	p.start()
	p.check(0)
}
