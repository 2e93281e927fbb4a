package source

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// flooded is a kernel ring that holds few records and whose writer waits for
// nobody.
type flooded struct {
	capacity int

	mu      sync.Mutex
	records []string // the oldest is number first
	first   int
	written chan struct{} // closed at the next record
	closed  chan struct{}
	at      int // the reader's place
}

func newFlooded(holds int) *flooded {
	return &flooded{capacity: holds, written: make(chan struct{}), closed: make(chan struct{})}
}

func (f *flooded) write(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.first + len(f.records)
	f.records = append(f.records, fmt.Sprintf("4,%d,%d,-;%s\n", n, n, text))
	if len(f.records) > f.capacity {
		f.records = f.records[1:]
		f.first++
	}
	close(f.written)
	f.written = make(chan struct{})
}

// read is a read that does not wait, as of the device.
func (f *flooded) read(buf []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.at < f.first:
		f.at = f.first
		return 0, syscall.EPIPE
	case f.at == f.first+len(f.records):
		return 0, syscall.EAGAIN
	}
	f.at++
	return copy(buf, f.records[f.at-1-f.first]), nil
}

func (f *flooded) Next(buf []byte, idle func()) (int, error) {
	for {
		f.mu.Lock()
		written := f.written
		f.mu.Unlock()
		if n, err := f.read(buf); !errors.Is(err, syscall.EAGAIN) {
			return n, err
		}
		idle()
		select {
		case <-written:
		case <-time.After(devicePollInterval):
		case <-f.closed:
			return 0, os.ErrClosed
		}
	}
}

func (f *flooded) Close() error { close(f.closed); return nil }

// cascade writes what a driver writes that has lost a GPU: the fault, then 41,000
// lines a second for two seconds.
func (f *flooded) cascade() {
	f.write("NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.")
	for range 2000 {
		for range 41 {
			f.write("NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST]")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestAFloodOverwritesNothingThatWasNotRead: the ring holds 2,400 records, as one of 256
// KiB does, and the monitor asks for lines four times a second.
func TestAFloodOverwritesNothingThatWasNotRead(t *testing.T) {
	const holds, tick = 2400, 250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		// What reading at the tick itself would have seen.
		f := newFlooded(holds)
		go f.cascade()
		seen, buf := 0, make([]byte, recordBytes)
		for range 12 {
			time.Sleep(tick)
			for {
				n, err := f.read(buf)
				if errors.Is(err, syscall.EAGAIN) {
					break
				}
				seen += strings.Count(string(buf[:n]), "Xid")
			}
		}
		if seen != 0 {
			t.Fatal("the ring is no test: it keeps what is read at the tick")
		}

		f = newFlooded(holds)
		s := NewKmsg("ring", clock.RealClock{})
		s.dial, s.size = func(string) (device, error) { return f, nil }, nil
		if err := s.Open(nil, "a"); err != nil {
			t.Fatal(err)
		}
		go f.cascade()
		var lines []Line
		for range 12 {
			time.Sleep(tick)
			for {
				b, err := s.Read(512)
				if err != nil {
					t.Fatal(err)
				}
				if len(b.Lines) == 0 {
					break
				}
				lines = append(lines, b.Lines...)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if len(lines) != 1+2000*41 || !strings.Contains(lines[0].Text, "Xid") || s.Counts() != (Counts{}) {
			t.Errorf("%d lines, the first %+v, counts %+v", len(lines), lines[0], s.Counts())
		}
	})
}

// TestAReaderThatIsFarAheadWaits: it keeps a bounded number of records, and the
// ring keeps the rest.
func TestAReaderThatIsFarAheadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(recordsAhead + 1000)
		for i := range recordsAhead + 1000 {
			f.write(fmt.Sprint("line ", i))
		}
		s := NewKmsg("ring", clock.RealClock{})
		s.dial, s.size = func(string) (device, error) { return f, nil }, nil
		if err := s.Open(nil, "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.at > recordsAhead+1 {
			t.Errorf("%d records were taken", f.at)
		}
		got := 0
		for {
			b, err := s.Read(1000)
			if err != nil {
				t.Fatal(err)
			}
			if got += len(b.Lines); b.End {
				break
			}
			synctest.Wait()
		}
		if got != recordsAhead+1000 || s.Counts() != (Counts{}) {
			t.Errorf("%d lines, counts %+v", got, s.Counts())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestALineHasTheTimeOfItsWriting: one of the past by the time since boot, one
// that was waited for by the clock.
func TestALineHasTheTimeOfItsWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(10)
		f.records = []string{"3,0,1000000,-;at one second\n", "3,1,99999999999,-;in the future\n"}
		s := NewKmsg("ring", clock.RealClock{})
		s.dial, s.size = func(string) (device, error) { return f, nil }, nil
		s.uptime = func() time.Duration { return time.Hour }
		began := time.Now()
		if err := s.Open(nil, "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		f.mu.Lock() // ten minutes have passed, and the kernel's clock shows eleven
		f.records = append(f.records, "3,2,4260000000,-;waited for\n", "3,3,4261000000,-;with it\n")
		close(f.written)
		f.written = make(chan struct{})
		f.mu.Unlock()
		time.Sleep(5 * time.Second)
		b, err := s.Read(9)
		if err != nil || len(b.Lines) != 4 {
			t.Fatalf("%+v, %v", b, err)
		}
		want := []time.Time{
			began.Add(time.Second - time.Hour), began, began.Add(10 * time.Minute), began.Add(10 * time.Minute),
		}
		for i, l := range b.Lines {
			if !l.At.Equal(want[i]) {
				t.Errorf("%s: %s, want %s", l.Text, l.At, want[i])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSmallRingIsLogged(t *testing.T) {
	for size, want := range map[int]string{256 << 10: "256 KiB", 2 << 20: ""} {
		s := NewKmsg("ring", clock.RealClock{})
		s.dial, s.size = (&fakeRing{}).open, func() (int, error) { return size, nil }
		for range 2 {
			if err := s.Open(nil, "a"); err != nil {
				t.Fatal(err)
			}
		}
		notes := strings.Join(s.takeNotes(), "\n")
		if !strings.Contains(notes, want) || (want == "") != (notes == "") || strings.Count(notes, "log_buf_len=2M") > 1 || s.Counts().Ring != int64(size) {
			t.Errorf("%d bytes: %q, %+v", size, notes, s.Counts())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
