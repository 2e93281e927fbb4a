package spool

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// childDir makes this test binary a process that appends until it is killed.
const childDir = "SPOOL_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		appendForever(dir, os.Getenv(childDir+"_ROUND"))
	}
	os.Exit(m.Run())
}

// appendForever prints the message of each record after it is acknowledged.
func appendForever(dir, round string) {
	o := options(dir)
	o.SegmentBytes = 64 << 10
	s, err := Open(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r := s.Reader("store")
	var out sync.Mutex
	var wg sync.WaitGroup
	for p := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				text := fmt.Sprintf("%s/%d/%d", round, p, i)
				rec := rec(0, text)
				rec.ID = idOf(text)
				if err := s.Append(context.Background(), []record.Record{rec}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				out.Lock()
				fmt.Println(text)
				out.Unlock()
				if p == 0 && i%50 == 0 { // truncations happen meanwhile
					if err := r.Confirm(uint64(i)); err != nil {
						fmt.Fprintln(os.Stderr, err)
						os.Exit(1)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestAcknowledgedRecordsSurviveSIGKILL kills a process in mid-append, several
// times on one folder, and looks for everything it acknowledged.
func TestAcknowledgedRecordsSurviveSIGKILL(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var acked []string
	for round, kill := range []int{1, 137, 900, 2500} {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s_ROUND=%d", childDir, round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := testkit.StartChild(cmd); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			acked = append(acked, lines.Text())
			if n == kill {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the process was not killed: %v", err)
		}
	}
	s := open(t, options(dir))
	released, _ := s.Bounds()
	found := map[string]bool{}
	for _, m := range messages(t, s, 0) {
		found[m] = true
	}
	missing := 0
	for _, m := range acked {
		if !found[m] {
			missing++
		}
	}
	// What was confirmed before the kills may be gone, nothing else.
	if missing > int(released) {
		t.Errorf("%d of %d acknowledged records are missing, %d were released", missing, len(acked), released)
	}
	if len(acked) < 3000 || len(found) == 0 {
		t.Errorf("the test proves nothing: %d acknowledged, %d found", len(acked), len(found))
	}
}

func idOf(text string) string {
	return rec(int(checksum(append(make([]byte, crcFrom), text...))), "").ID
}

// FuzzRepair gives the repair any bytes for a segment: it ends, what it leaves
// opens, and a second repair finds nothing more.
func FuzzRepair(f *testing.F) {
	var whole []byte
	for i := range 3 {
		x, err := newFrame(rec(i, "m"))
		if err != nil {
			f.Fatal(err)
		}
		x.index, x.body = uint64(i)+1, x.body[:20]
		whole = appendEntry(whole, x)
	}
	f.Add(whole, whole)
	f.Add(whole[:100], []byte{})
	f.Add([]byte{0, 0, 0}, whole[50:])
	f.Fuzz(func(t *testing.T, first, second []byte) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, fmt.Sprintf("%020d", 1)), first)
		write(t, filepath.Join(dir, fmt.Sprintf("%020d", 3)), second)
		var seen []uint64
		segments, _, err := repair(dir, (*os.File).ReadAt, func(f frame) { seen = append(seen, f.index) })
		if err != nil {
			t.Fatal(err)
		}
		for i, index := range seen {
			if index != uint64(i)+1 {
				t.Fatalf("entries %v are not contiguous", seen)
			}
		}
		j, err := openWAL(dir, 1<<20, segments, (*os.File).ReadAt)
		if err != nil {
			t.Fatal(err)
		}
		if _, last := j.bounds(); last != uint64(len(seen)) {
			t.Fatalf("the log ends at %d, %d entries were seen", last, len(seen))
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		if _, damage, err := repair(dir, (*os.File).ReadAt, func(frame) {}); err != nil || len(damage) > 0 {
			t.Fatalf("the second repair found %v, %v", damage, err)
		}
	})
}
