// Package journaltest makes real systemd journals for tests, with any boot id
// and any field, through systemd-journal-remote, which writes journal files from
// the export format (systemd.io/JOURNAL_EXPORT_FORMATS).
package journaltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Journal is a journal folder and its writer.
type Journal struct {
	// Dir is the folder.
	Dir string
	// Machine is the id of the machine that the next entries are of.
	Machine string

	t     testing.TB
	usec  int64
	file  int
	files map[string]string // a text and the file that holds it
}

// begun is the wall time of the first entry.
var begun = time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC).UnixMicro()

// remotePlaces is where Debian and others install the writer.
var remotePlaces = []string{"/usr/lib/systemd/systemd-journal-remote", "/lib/systemd/systemd-journal-remote"}

// Journalctl is the path of the tool that reads journals; the test fails
// without it.
func Journalctl(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("journalctl")
	if err != nil {
		t.Fatalf("journalctl is missing; hack/packages.sh systemd-journal-remote installs it: %v", err)
	}
	return path
}

func writer(t testing.TB) string {
	t.Helper()
	for _, path := range remotePlaces {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("systemd-journal-remote is missing; hack/packages.sh systemd-journal-remote installs it")
	return ""
}

// New makes an empty journal.
func New(t testing.TB) *Journal {
	t.Helper()
	return At(t, filepath.Join(t.TempDir(), "journal"))
}

// At makes an empty journal in a folder.
func At(t testing.TB, dir string) *Journal {
	t.Helper()
	writer(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &Journal{Dir: dir, Machine: strings.Repeat("7", 32), t: t, files: map[string]string{}}
}

// Kernel adds entries of the kernel.
func (j *Journal) Kernel(boot string, texts ...string) {
	j.t.Helper()
	var b bytes.Buffer
	for _, text := range texts {
		j.begin(&b, boot)
		b.WriteString("_TRANSPORT=kernel\nSYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=kernel\nPRIORITY=3\n")
		raw(&b, "MESSAGE", []byte(text))
		b.WriteByte('\n')
		j.files[text] = j.path()
	}
	j.write(&b)
}

// Program adds an entry that a program of a user sent to syslog.
func (j *Journal) Program(boot string, uid int, tag, text string) {
	j.t.Helper()
	j.Entry(boot, "_TRANSPORT=syslog", fmt.Sprintf("_UID=%d", uid), "SYSLOG_IDENTIFIER="+tag, "SYSLOG_FACILITY=3", "MESSAGE="+text)
}

// Entry adds an entry with the given fields, each "NAME=value".
func (j *Journal) Entry(boot string, fields ...string) {
	j.t.Helper()
	var b bytes.Buffer
	j.begin(&b, boot)
	b.WriteString(strings.Join(fields, "\n") + "\n\n")
	j.write(&b)
}

// Bytes adds an entry of the kernel with a field of any bytes.
func (j *Journal) Bytes(boot, name string, value []byte) {
	j.t.Helper()
	var b bytes.Buffer
	j.begin(&b, boot)
	b.WriteString("_TRANSPORT=kernel\nSYSLOG_FACILITY=0\n")
	raw(&b, name, value)
	b.WriteByte('\n')
	j.write(&b)
}

// Rotate archives the file that is written and begins another one.
func (j *Journal) Rotate() { j.file++ }

// Remove deletes the file that holds an entry of the kernel, as vacuuming does.
func (j *Journal) Remove(text string) {
	j.t.Helper()
	if err := os.Remove(j.files[text]); err != nil {
		j.t.Fatal(err)
	}
}

// Wipe deletes every file.
func (j *Journal) Wipe() {
	j.t.Helper()
	files, err := filepath.Glob(filepath.Join(j.Dir, "*.journal"))
	if err != nil {
		j.t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			j.t.Fatal(err)
		}
	}
	j.file++
}

func (j *Journal) path() string {
	return filepath.Join(j.Dir, fmt.Sprintf("remote-%03d.journal", j.file))
}

// begin writes what every entry has; time passes a millisecond per entry.
func (j *Journal) begin(b *bytes.Buffer, boot string) {
	j.usec += 1000
	fmt.Fprintf(b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n_MACHINE_ID=%s\n",
		begun+j.usec, j.usec, strings.ReplaceAll(boot, "-", ""), j.Machine)
}

// raw writes a field in the form that takes any bytes.
func raw(b *bytes.Buffer, name string, value []byte) {
	b.WriteString(name + "\n")
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
	b.Write(value)
	b.WriteByte('\n')
}

func (j *Journal) write(export *bytes.Buffer) {
	j.t.Helper()
	cmd := exec.CommandContext(j.t.Context(), writer(j.t), "--output="+j.path(), "-")
	cmd.Stdin = export
	if out, err := cmd.CombinedOutput(); err != nil {
		j.t.Fatalf("writing the journal: %v\n%s", err, out)
	}
}
