package source

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// desk is a log file under test and the place of its reader.
type desk struct {
	t    *testing.T
	path string
	file *File
	last json.RawMessage
}

func newDesk(t *testing.T, content string) *desk {
	t.Helper()
	d := &desk{t: t, path: filepath.Join(t.TempDir(), "kern.log")}
	d.write(d.path, content)
	d.file = NewFile(d.path, clock.RealClock{})
	t.Cleanup(func() { _ = d.file.Close() })
	return d
}

func (d *desk) write(path, content string) {
	d.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) add(path, content string) {
	d.t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		d.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) rename(from, to string) {
	d.t.Helper()
	if err := os.Rename(from, to); err != nil {
		d.t.Fatal(err)
	}
}

// age sets a file's last write, because the files of a test are all of now.
func (d *desk) age(path string, minutes int) {
	d.t.Helper()
	at := time.Now().Add(-time.Duration(minutes) * time.Minute)
	if err := os.Chtimes(path, at, at); err != nil {
		d.t.Fatal(err)
	}
}

// open opens the log at the place of the last line that was read.
func (d *desk) open() {
	d.t.Helper()
	if err := d.file.Open(d.last, ""); err != nil {
		d.t.Fatal(err)
	}
}

// restart is another process.
func (d *desk) restart() {
	d.t.Helper()
	_ = d.file.Close()
	d.file = NewFile(d.path, clock.RealClock{})
	d.open()
}

// read reads to the end; lines of a past boot are marked with "-".
func (d *desk) read() []string {
	d.t.Helper()
	var out []string
	for {
		lines, err := d.file.read(3)
		if err != nil {
			d.t.Fatal(err)
		}
		if len(lines) == 0 {
			return out
		}
		for _, l := range lines {
			text := l.Text
			if l.Past {
				text = "-" + text
			}
			out, d.last = append(out, text), l.Cursor
		}
	}
}

func (d *desk) expect(want ...string) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.read()); diff != "" {
		d.t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func (d *desk) counted(want Counts) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.file.Counts()); diff != "" {
		d.t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestReadsFromTheBeginningAndOn(t *testing.T) {
	d := newDesk(t, "a\nb\nc\nd\ne\n")
	d.open()
	d.expect("a", "b", "c", "d", "e")
	d.expect()
	d.add(d.path, "f\r\n\n")
	d.expect("f", "")
	d.restart()
	d.expect()
	d.add(d.path, "g\n")
	d.expect("g")
	d.counted(Counts{})
}

func TestEveryPlaceResumesExactly(t *testing.T) {
	lines := strings.Repeat("short\n"+strings.Repeat("long", 100)+"\n\n", 5)
	d := newDesk(t, lines)
	d.open()
	all := d.read()
	d.last = nil
	d.restart()
	for i := range all {
		got, err := d.file.read(1)
		if err != nil || len(got) != 1 || got[0].Text != all[i] {
			t.Fatalf("line %d: %v, error %v", i, got, err)
		}
		d.last = got[0].Cursor
		d.restart()
	}
	d.expect()
	d.counted(Counts{})
}

func TestPartialLineWaitsForItsNewline(t *testing.T) {
	d := newDesk(t, "a\nNVRM: X")
	d.open()
	d.expect("a")
	d.add(d.path, "id")
	d.expect()
	d.restart()
	d.expect()
	d.add(d.path, "!\nb\n")
	d.expect("NVRM: Xid!", "b")
}

func TestForeignAndEndlessLinesDoNotStopIt(t *testing.T) {
	d := newDesk(t, "a\n\xff\xfe\x00b\n"+strings.Repeat("x", 1<<20)+"\nc\n"+strings.Repeat("y", 3*chunk))
	d.open()
	d.expect("a", "\uFFFD\x00b", strings.Repeat("x", MaxLine), "c")
	d.counted(Counts{Cut: 1})
	d.restart()
	d.expect()
	d.add(d.path, "\nd\n")
	d.expect(strings.Repeat("y", MaxLine), "d")
}

func TestRotationByRenaming(t *testing.T) {
	d := newDesk(t, "a\n")
	d.open()
	d.expect("a")
	d.rename(d.path, d.path+".1")
	d.add(d.path+".1", "b\n")
	d.expect("b") // the name is gone, the old file is still written
	d.write(d.path, "")
	d.add(d.path+".1", "c\n")
	d.expect("c") // the new file is empty: its writer has not moved yet
	d.add(d.path+".1", "d\nrest")
	d.add(d.path, "e\n")
	d.expect("d", "rest", "e")
	d.restart()
	d.expect()
	d.counted(Counts{})
}

func TestRotationsWhileNobodyRead(t *testing.T) {
	for _, name := range []string{"numbered", "dated"} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "a\nb\n")
			d.open()
			if lines, err := d.file.read(1); err != nil || len(lines) != 1 {
				t.Fatal(lines, err)
			} else {
				d.last = lines[0].Cursor
			}
			oldest, middle := d.path+".2", d.path+".1"
			if name == "dated" {
				oldest, middle = d.path+"-20260101", d.path+"-20260102"
			}
			d.rename(d.path, oldest)
			d.write(middle, "c\nd\n")
			d.write(d.path, "e\n")
			d.write(d.path+".3", "older than the place\n")
			d.write(d.path+".1.gz", "packed\n")
			d.write(d.path+".swp", "no rotation\n")
			d.age(d.path+".3", 30)
			d.age(oldest, 20)
			d.age(middle, 10)
			d.restart()
			d.expect("b", "c", "d", "e")
			d.restart()
			d.expect()
			d.counted(Counts{})
		})
	}
}

func TestRestartBetweenTheFiles(t *testing.T) {
	d := newDesk(t, "a\nb\n")
	d.open()
	d.expect("a", "b")
	d.rename(d.path, d.path+".1")
	d.age(d.path+".1", 10)
	d.write(d.path, "c\nd\n")
	d.restart()
	d.expect("c", "d")
	d.counted(Counts{})
}

func TestVanishedFileIsAGap(t *testing.T) {
	d := newDesk(t, "a\n")
	d.age(d.path, 30)
	d.open()
	d.expect("a")
	// A new file is made before the old one goes, so that it has another inode.
	d.write(d.path+".new", "c\n")
	d.rename(d.path+".new", d.path)
	d.write(d.path+".1", "b\n")
	d.age(d.path+".1", 10)
	d.restart()
	d.expect("b", "c")
	d.counted(Counts{Gaps: 1})
}

func TestTruncationStartsAgain(t *testing.T) {
	t.Run("while reading", func(t *testing.T) {
		d := newDesk(t, "a\nb\n")
		d.open()
		d.expect("a", "b")
		d.write(d.path, "c\n")
		d.expect("c")
		d.counted(Counts{Truncations: 1, Gaps: 1})
	})
	t.Run("while nobody read, and grown beyond the place", func(t *testing.T) {
		d := newDesk(t, "a\nb\n")
		d.open()
		d.expect("a", "b")
		d.write(d.path, "c\nd\ne\nf\n")
		d.restart()
		d.expect("c", "d", "e", "f")
		d.counted(Counts{Truncations: 1, Gaps: 1})
	})
	t.Run("while reading, and grown beyond the place", func(t *testing.T) {
		d := newDesk(t, "a\nb\n")
		d.open()
		d.expect("a", "b")
		d.write(d.path, "c\nd\ne\nf\n")
		d.expect("c", "d", "e", "f")
		d.counted(Counts{Truncations: 1, Gaps: 1})
	})
	t.Run("to nothing", func(t *testing.T) {
		d := newDesk(t, "a\npartial")
		d.open()
		d.expect("a")
		d.write(d.path, "")
		d.expect()
		d.add(d.path, "b\n")
		d.expect("b")
		d.counted(Counts{Truncations: 1, Gaps: 1})
	})
}

func TestMissingFileIsAwaited(t *testing.T) {
	d := newDesk(t, "a\n")
	other := NewFile(filepath.Join(filepath.Dir(d.path), "later.log"), clock.RealClock{})
	if err := other.Open(nil, ""); err == nil {
		t.Fatal("a missing file was opened")
	}
	d.write(filepath.Join(filepath.Dir(d.path), "later.log"), "x\n")
	if err := other.Open(nil, ""); err != nil {
		t.Fatal(err)
	}
	lines, err := other.read(9)
	if err != nil || len(lines) != 1 {
		t.Errorf("lines %v, error %v", lines, err)
	}
	if err := NewFile(t.TempDir(), clock.RealClock{}).Open(nil, ""); err == nil {
		t.Error("a folder was opened as a log")
	}
}

const banner = "Nov 21 05:00:00 n kernel: [    0.000000] Linux version 6.18\n"

func TestFirstReadingBeginsWithTheCurrentBoot(t *testing.T) {
	d := newDesk(t, "past\n"+banner+"also past\n"+banner+"now\n")
	d.open()
	d.expect(strings.TrimSuffix(banner, "\n"), "now")
}

func TestRebootDividesTheUnreadPart(t *testing.T) {
	line := strings.TrimSuffix(banner, "\n")
	for _, c := range []struct {
		name   string
		change func(d *desk)
		later  string
		want   []string
	}{
		{"same file", func(d *desk) { d.add(d.path, "b\nc\n") }, "d\n", []string{"-b", "-c", "d"}},
		{"same file, partial line", func(d *desk) { d.add(d.path, "b\nc") }, "\nd\n", []string{"-b", "-c", "d"}},
		{"same file, the boot shows", func(d *desk) { d.add(d.path, "b\n"+banner+"c\n"+banner+"d\n") }, "e\n",
			[]string{"-b", "-" + line, "-c", line, "d", "e"}},
		{"new file", func(d *desk) {
			d.add(d.path, "b\n")
			d.rename(d.path, d.path+".1")
			d.age(d.path+".1", 5)
			d.write(d.path, "c\n")
		}, "d\n", []string{"-b", "c", "d"}},
		{"new files, the boot shows in the last", func(d *desk) {
			d.add(d.path, "b\n")
			d.rename(d.path, d.path+".2")
			d.age(d.path+".2", 9)
			d.write(d.path+".1", "c\n")
			d.age(d.path+".1", 5)
			d.write(d.path, "d\n"+banner+"e\n")
		}, "f\n", []string{"-b", "-c", "-d", line, "e", "f"}},
		{"truncated at boot", func(d *desk) { d.write(d.path, "") }, "b\n", []string{"b"}},
		{"nothing unread", func(*desk) {}, "b\n", []string{"b"}},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarts %t", c.name, restarts), func(t *testing.T) {
				d := newDesk(t, "a\n")
				d.age(d.path, 30)
				d.open()
				d.expect("a")
				_ = d.file.Close()
				c.change(d)
				d.restart()
				cursor, err := d.file.Reboot("new")
				if err != nil {
					t.Fatal(err)
				}
				if d.last = cursor; restarts {
					d.restart()
				}
				d.add(d.path, c.later)
				var got []string
				for restarts {
					lines, err := d.file.read(1)
					if err != nil {
						t.Fatal(err)
					}
					if len(lines) == 0 {
						break
					}
					got, d.last = append(got, mark(lines[0])), lines[0].Cursor
					d.restart()
				}
				got = append(got, d.read()...)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func mark(l Line) string {
	if l.Past {
		return "-" + l.Text
	}
	return l.Text
}

// FuzzFile reads any bytes, in pieces of any size with a restart at any place,
// and must give the lines that a plain split gives.
func FuzzFile(f *testing.F) {
	f.Add([]byte("a\nb\n\n\xff\nend"), uint8(1))
	f.Add([]byte(strings.Repeat("z", MaxLine+5)+"\nq\n"), uint8(2))
	f.Fuzz(func(t *testing.T, content []byte, limit uint8) {
		if strings.Contains(string(content), "Linux version") {
			return
		}
		d := newDesk(t, string(content))
		var got []string
		for {
			d.restart()
			lines, err := d.file.read(int(limit%7) + 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(lines) == 0 {
				break
			}
			for _, l := range lines {
				got, d.last = append(got, l.Text), l.Cursor
			}
		}
		var want []string
		parts := strings.Split(string(content), "\n")
		for _, p := range parts[:len(parts)-1] {
			want = append(want, strings.ToValidUTF8(strings.TrimSuffix(p[:min(len(p), MaxLine)], "\r"), "\uFFFD"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}

func TestRotationsWithinOneTickOfTheClock(t *testing.T) {
	for name, names := range map[string][2]string{"numbered": {".2", ".1"}, "dated": {"-20260101", "-20260102"}, "with time": {".20260101-0900", ".20260102-0900"},
		"of two years": {"-2025-12-31", "-2026-01-01"}, "of a day": {"-20260102-0900", "-20260102-1000"}} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "a\n")
			d.open()
			d.expect("a")
			d.rename(d.path, d.path+names[0])
			d.write(d.path+names[1], "b\n")
			d.write(d.path, "c\n")
			for _, f := range []string{d.path, d.path + names[0], d.path + names[1]} {
				d.age(f, 1)
				at := time.Unix(1_800_000_000, 0)
				if err := os.Chtimes(f, at, at); err != nil {
					t.Fatal(err)
				}
			}
			d.expect("b", "c")
			d.restart()
			d.expect()
		})
	}
}

// TestTimesOfTalos: behind host, facility and level.
func TestTimesOfTalos(t *testing.T) {
	want := time.Date(2026, 4, 22, 21, 0, 0, 100_000_000, time.UTC)
	for line, known := range map[string]bool{
		"10.0.0.5: kern: warning: [2026-04-22T21:00:00.1Z]: x":     true,
		"kern:     err: [2026-04-22T23:00:00.1+02:00]: x":          true,
		"kern:     err: [2026-04-22T21:00:00.1Z] x":                false,
		"Apr 22 21:00:00 n1 kernel: [    8.951695] x: [y]: z":      false,
		strings.Repeat("x", 300) + ": [2026-04-22T21:00:00.1Z]: x": false,
	} {
		stamp, form := timestampOf(line)
		at, ok := form.read(stamp, time.UTC, want)
		if got := ok && form.zoned && at.Equal(want); got != known {
			t.Errorf("%q: %s", line, at)
		}
	}
}

// TestALineOfAFileTellsHowOldTheBootIs: by the kernel's stamp.
func TestALineOfAFileTellsHowOldTheBootIs(t *testing.T) {
	d := newDesk(t, "Apr 22 21:00:00 n1 kernel: [    8.500000] x\n")
	d.open()
	if b, err := d.file.Read(9); err != nil || len(b.Lines) != 1 || b.Lines[0].SinceBoot != 8500*time.Millisecond {
		t.Errorf("batch %+v, error %v", b, err)
	}
}
