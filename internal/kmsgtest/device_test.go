package kmsgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func open(t *testing.T) *Device {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *Device) write(t *testing.T, texts ...string) {
	t.Helper()
	if err := d.Print(texts...); err != nil {
		t.Fatal(err)
	}
}

// reader opens the device as the monitor does.
func (d *Device) reader(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(d.Path(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // some are closed before
	return f
}

var record = regexp.MustCompile(`^3,(\d+),\d+,-;(.*)\n PADDING=x*\n$`)

// next reads records, one by each read, as "<number> <text>".
func next(t *testing.T, f *os.File, count int) (out []string) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16<<10)
	for range count {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = syscall.Read(int(fd), buf)
			return n > 0 || failed != nil && !errors.Is(failed, syscall.EAGAIN)
		})
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		m := record.FindStringSubmatch(string(buf[:n]))
		if m == nil {
			t.Fatalf("a read returned %q", buf[:n])
		}
		out = append(out, m[1]+" "+m[2])
	}
	return out
}

func expect(t *testing.T, f *os.File, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, next(t, f, len(want))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestEveryOpeningBeginsAtTheOldestRecord: whatever another one has read before.
func TestEveryOpeningBeginsAtTheOldestRecord(t *testing.T) {
	d := open(t)
	d.write(t, "a", "b")
	for range 3 {
		f := d.reader(t)
		expect(t, f, "0 a")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f := d.reader(t)
	expect(t, f, "0 a", "1 b")
	d.write(t, "c")
	expect(t, f, "2 c")
}

// TestMoreThanAPipeHolds: the ring keeps what its reader has not taken.
func TestMoreThanAPipeHolds(t *testing.T) {
	d := open(t)
	f := d.reader(t)
	for range 1000 {
		d.write(t, "x")
	}
	if got := next(t, f, 1000); got[999] != "999 x" {
		t.Errorf("the last record is %q", got[999])
	}
}

var number = regexp.MustCompile(`^\d+,(\d+),`)

// newest opens a device, waits for a record, and reads on until a read finds none.
func newest(t *testing.T, path string) (last uint64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	found, buf := false, make([]byte, 16<<10)
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, err := syscall.Read(int(fd), buf)
			switch {
			case errors.Is(err, syscall.EPIPE): // overwritten before it was read
				continue
			case n == 0 && err == nil, errors.Is(err, syscall.EAGAIN):
				return found
			case err != nil:
				failed = err
				return true
			}
			found = true
			if last, failed = strconv.ParseUint(number.FindStringSubmatch(string(buf[:n]))[1], 10, 64); failed != nil {
				return true
			}
		}
	})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return last
}

// TestAnOpeningShowsTheWholeRing: before a read finds no record, here and in the kernel's
// own device.
func TestAnOpeningShowsTheWholeRing(t *testing.T) {
	t.Run("kernel", func(t *testing.T) {
		const kernel = "/dev/kmsg"
		if f, err := os.Open(kernel); err != nil {
			t.Skipf("this machine does not let its kernel's log be read: %v", err)
		} else if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		before := newest(t, kernel)
		if after := newest(t, kernel); after < before {
			t.Errorf("record %d was the last, and %d of an earlier opening", after, before)
		}
	})
	d := open(t)
	for i := range pipeRecords {
		d.write(t, fmt.Sprint("line ", i))
	}
	for range 10 {
		if last := newest(t, d.Path()); last != uint64(pipeRecords-1) {
			t.Fatalf("a read found none behind record %d of %d", last, pipeRecords)
		}
	}
}

func TestOverwrittenRecordsAreSeenByTheirNumbers(t *testing.T) {
	d := open(t)
	f := d.reader(t)
	d.write(t, "a")
	expect(t, f, "0 a")
	d.write(t, "b", "c")
	d.Overwrite()
	d.write(t, "d")
	fresh := d.reader(t)
	expect(t, fresh, "3 d")
}

func TestBootRestartsSequenceNumbers(t *testing.T) {
	d := open(t)
	f := d.reader(t)
	d.write(t, "a")
	expect(t, f, "0 a")
	d.Reboot()
	d.write(t, "b")
	if n, err := f.Read(make([]byte, 99)); n != 0 || err == nil {
		t.Errorf("a reader of the boot before has read %d bytes: %v", n, err)
	}
	expect(t, d.reader(t), "0 b")
}

// TestPrintkWrites: one writer after another writes a record, and the transcript shows
// them.
func TestPrintkWrites(t *testing.T) {
	d := open(t)
	f := d.reader(t)
	for i, text := range []string{"a", `b\` + "\t€"} {
		if err := os.WriteFile(d.printkPath(), []byte(text+"\n"), 0); err != nil {
			t.Fatal(err)
		}
		expect(t, f, []string{"0 a", `1 b\x5c\x09\xe2\x82\xac`}[i])
	}
	output, err := os.ReadFile(filepath.Join(d.dir, "dmesg"))
	if diff := cmp.Diff("a\nb\\\t€\n", string(output)); err != nil || diff != "" {
		t.Errorf("error %v, transcript (-want +got):\n%s", err, diff)
	}
}

func TestARecordThatNoReadCouldReturnIsRefused(t *testing.T) {
	d := open(t)
	if err := d.Print(strings.Repeat("x", maxRecord)); err == nil {
		t.Error("it was printed")
	}
}
