package source

import (
	"bytes"
	"compress/gzip"
	"os"
	"strings"
	"testing"
	"time"
)

// pack packs a file as logrotate does: the packed one has its time.
func (d *desk) pack(path string) {
	d.t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		d.t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		d.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.write(path+".gz", out.String())
	if err := os.Chtimes(path+".gz", info.ModTime(), info.ModTime()); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		d.t.Fatal(err)
	}
}

// TestWhatWasNotReadStandsInTheCopy: copytruncate with unread lines.
func TestWhatWasNotReadStandsInTheCopy(t *testing.T) {
	for _, down := range []bool{false, true} {
		for _, packed := range []bool{false, true} {
			d := newDesk(t, "a\nb\n")
			d.open()
			d.expect("a", "b")
			d.add(d.path, "c\nd\n")
			d.write(d.path+".2", "a\n")
			d.write(d.path+".1", "a\nb\nc\nd\n")
			if packed {
				d.pack(d.path + ".1")
			}
			d.write(d.path, "e\n")
			if down {
				d.restart()
			}
			d.expect("c", "d", "e")
			d.counted(Counts{Truncations: 1})
			d.restart()
			d.expect()
			d.add(d.path, "f\n")
			d.expect("f")
		}
	}
}

// TestAFileThatHasGrownAgainIsNotTheSame: it begins with the same bytes and is
// longer than what was read of it.
func TestAFileThatHasGrownAgainIsNotTheSame(t *testing.T) {
	head := strings.Repeat("x", 2*printBytes)
	for _, down := range []bool{false, true} {
		d := newDesk(t, head+"\na\nb\n")
		d.open()
		d.expect(head, "a", "b")
		d.add(d.path, "c\n")
		d.expect("c")
		d.write(d.path, head+"\nd\ne\nf\ng\nh\n")
		if down {
			d.restart()
		}
		d.expect(head, "d", "e", "f", "g", "h")
		d.counted(Counts{Truncations: 1, Gaps: 1})
	}
}

func TestPackedFilesAreRead(t *testing.T) {
	d := newDesk(t, "a\nb\nc\n")
	d.open()
	if b, err := d.file.Read(1); err != nil || len(b.Lines) != 1 {
		t.Fatal(b, err)
	} else {
		d.last = b.Lines[0].Cursor
	}
	d.rename(d.path, d.path+".2")
	d.pack(d.path + ".2")
	d.write(d.path+".1", "d\ne\n")
	d.pack(d.path + ".1")
	d.write(d.path, "f\n")
	d.restart()
	d.expect("b", "c", "d", "e", "f")
	d.restart()
	d.expect()
	d.counted(Counts{})
}

// TestADamagedPackIsAGap: what is whole of it is read, and the log goes on.
func TestADamagedPackIsAGap(t *testing.T) {
	d := newDesk(t, "a\nb\n")
	d.open()
	d.expect("a", "b")
	d.rename(d.path, d.path+".2")
	d.write(d.path+".1.gz", "no pack")
	d.write(d.path, "c\n")
	d.restart()
	d.expect("c")
	d.counted(Counts{Gaps: 1})
	d.rename(d.path, d.path+".1")
	d.write(d.path+".0", "d\ne\n")
	d.pack(d.path + ".0")
	info, err := os.Stat(d.path + ".0.gz")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.path+".0.gz", info.Size()-4); err != nil {
		t.Fatal(err)
	}
	d.write(d.path, "f\n")
	d.expect("d", "e", "f")
	d.counted(Counts{Gaps: 2})
}

// TestAClockThatWasSetBackSkipsNoFile: rotated twice while nobody read, the second
// file a day older than what was read.
func TestAClockThatWasSetBackSkipsNoFile(t *testing.T) {
	d := newDesk(t, "a\nb\n")
	d.open()
	d.expect("a", "b")
	d.rename(d.path, d.path+".2")
	d.write(d.path+".1", "c\nd\n")
	d.age(d.path+".1", 24*60)
	d.write(d.path, "e\n")
	d.age(d.path, 23*60)
	d.restart()
	d.expect("c", "d", "e")
	d.counted(Counts{})
}

func TestTimesOfLines(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC)
	for line, want := range map[string]string{
		"Dec 31 23:04:01 n1 kernel: x":                      "2025-12-31T23:04:01Z",
		"Jan  1 00:04:01 n1 kernel: x":                      "2026-01-01T00:04:01Z",
		"Jan  2 00:04:01 n1 kernel: x":                      "2026-01-01T00:30:00Z", // within what clocks may be off
		"Feb 29 10:00:00 n1 kernel: x":                      "2024-02-29T10:00:00Z",
		"Feb 30 10:00:00 n1 kernel: x":                      "",
		"<6>Dec 31 23:04:01 n1 kernel: x":                   "2025-12-31T23:04:01Z",
		"2025-12-31T23:04:01.5+01:00 n1 kernel: x":          "2025-12-31T22:04:01.5Z",
		"2025-12-31T23:04:01,123456+00:00 NVRM: x":          "2025-12-31T23:04:01.123456Z",
		"2025-12-31T23:04:01 n1 kernel: x":                  "2025-12-31T23:04:01Z",
		"<6>1 2025-12-31T23:04:01Z n1 kernel - - - NVRM: x": "2025-12-31T23:04:01Z",
		"[Wed Dec 31 23:04:01 2025] NVRM: x":                "2025-12-31T23:04:01Z",
		"2031-12-31T23:04:01Z n1 kernel: x":                 "2026-01-01T00:30:00Z",
		"[  100.5] NVRM: x":                                 "",
		"A 3 5 7 9 T":                                       "",
		"1 3 5 7 9 T and so on":                             "",
		"<":                                                 "",
		"":                                                  "",
		strings.Repeat("\xff", 40):                          "",
	} {
		f := NewFile("x", clockAt(now))
		f.zone = time.UTC
		got := ""
		if at := f.written(line); !at.IsZero() {
			got = at.Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// clockAt is a clock that stands.
type clockAt time.Time

func (c clockAt) Now() time.Time                  { return time.Time(c) }
func (c clockAt) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestTheFileTellsItsZone: its last line was written when it was changed last.
func TestTheFileTellsItsZone(t *testing.T) {
	changed := time.Date(2026, 7, 1, 2, 0, 10, 0, time.UTC)
	for last, want := range map[string]time.Duration{
		"Jun 30 19:00:09 n1 kernel: x": -7 * time.Hour, "Jul  1 07:30:10 n1 kernel: x": 5*time.Hour + 30*time.Minute,
		"Jul  1 02:00:10 n1 kernel: x": 0,
	} {
		zone, ok := zoneOf([]byte("cut\nJul  1 01:00:00 n1 kernel: x\n"+last+"\n"), changed)
		if !ok {
			t.Errorf("%q: no zone", last)
			continue
		}
		if _, offset := changed.In(zone).Zone(); time.Duration(offset)*time.Second != want {
			t.Errorf("%q: %d, want %s", last, offset, want)
		}
	}
	for _, last := range []string{"Jul  1 02:07:00 n1 kernel: x", "Jun 29 02:00:10 n1 kernel: x", "2026-07-01T02:00:10Z n1 kernel: x", "[1.0] x", ""} {
		if zone, ok := zoneOf([]byte(last+"\n"), changed); ok {
			t.Errorf("%q: %v", last, zone)
		}
	}
}

// TestALineIsNotOlderThanTheLastLook: whatever its stamp says.
func TestALineIsNotOlderThanTheLastLook(t *testing.T) {
	d := newDesk(t, "Jan  1 00:00:00 n1 kernel: a\n")
	d.open()
	began := time.Now()
	d.read()
	d.add(d.path, "Jan  1 00:00:01 n1 kernel: b\n")
	b, err := d.file.Read(9)
	if err != nil || len(b.Lines) != 1 || b.Lines[0].At.Before(began) {
		t.Errorf("%+v, %v", b, err)
	}
	d.last = b.Lines[0].Cursor
	d.restart()
	d.add(d.path, "Jan  1 00:00:02 n1 kernel: c\n")
	if b, err := d.file.Read(9); err != nil || len(b.Lines) != 1 || b.Lines[0].At.Before(began) {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestALongPackIsUnpackedOnce: however few lines are taken at a time.
func TestALongPackIsUnpackedOnce(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	const lines = 20_000
	d := newDesk(t, "a\n")
	d.open()
	d.expect("a")
	d.add(d.path, strings.Repeat(line, lines))
	d.rename(d.path, d.path+".1")
	d.pack(d.path + ".1")
	d.write(d.path, "b\n")
	d.restart()
	f, ok := d.file.open.(*packedFile)
	if !ok {
		t.Fatalf("%T is read", d.file.open)
	}
	began := f.unpacked
	read := 0
	for {
		b, err := d.file.Read(512)
		if err != nil {
			t.Fatal(err)
		}
		if d.file.open != logFile(f) {
			break
		}
		if read += len(b.Lines); f.unpacked != began {
			t.Fatalf("unpacked again after %d lines", read)
		}
	}
	if read != lines {
		t.Errorf("%d lines of the pack, want %d", read, lines)
	}
}
