// Package kmsgtest implements a log device of the kernel for tests and the demo: a named
// pipe that is read as /dev/kmsg is, and a ring of records behind it. A read returns one
// record, and every opening begins at the oldest record of the ring. As with /dev/kmsg, a
// reader that has got a record finds all others of the ring before a read finds none; of a
// ring with more than 256 records, which is more than a pipe holds, it may have to wait for
// the others.
package kmsgtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRecord is what a record may have: a pipe hands on a packet as one read.
const maxRecord = 4096 - len(padding) - 1

// padding begins the line behind a record's text that fills its packet. The kernel has
// such lines about devices.
const padding = " PADDING="

// pipeRecords is how many records a pipe holds, the most that any user may ask for.
const pipeRecords = 256

// Device is a kernel log device. Its readers may come and go as they like, one at a time.
type Device struct {
	dir        string
	printk     *os.File // what is written into it is printed
	transcript *os.File

	mu     sync.Mutex
	change *sync.Cond // of what follows
	ring   []string
	next   uint64 // sequence number of the next record
	boot   int
	pipes  map[*os.File]bool // of readers
	closed bool

	running sync.WaitGroup
}

// Open makes a device in a folder of its own: "kmsg" is the device, a line that is
// written into "printk" becomes a record of the kernel, and "dmesg" is a transcript.
func Open(dir string) (_ *Device, err error) {
	d := &Device{dir: dir, pipes: map[*os.File]bool{}}
	d.change = sync.NewCond(&d.mu)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a kernel log: %w", err)
	}
	if d.transcript, err = os.OpenFile(filepath.Join(dir, "dmesg"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("making a kernel log: %w", err)
	}
	if err := errors.Join(renew(d.Path()), renew(d.printkPath())); err != nil {
		return nil, errors.Join(fmt.Errorf("making a kernel log: %w", err), d.transcript.Close())
	}
	// For writing too: the end of one writer is not the end of the pipe.
	if d.printk, err = os.OpenFile(d.printkPath(), os.O_RDWR, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("making a kernel log: %w", err), d.transcript.Close())
	}
	d.running.Go(d.listen)
	d.running.Go(d.accept)
	return d, nil
}

// Path is the device.
func (d *Device) Path() string { return filepath.Join(d.dir, "kmsg") }

func (d *Device) printkPath() string { return filepath.Join(d.dir, "printk") }

// renew puts a new pipe in the place of a path.
func renew(path string) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := syscall.Mkfifo(fresh, 0o644); err != nil {
		return fmt.Errorf("making the pipe %s: %w", fresh, err)
	}
	return os.Rename(fresh, path)
}

// Print has the kernel write records, one for each text.
func (d *Device) Print(texts ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, text := range texts {
		record, err := d.record(text)
		if err != nil {
			return err
		}
		d.ring, d.next = append(d.ring, record), d.next+1
		if _, err := fmt.Fprintln(d.transcript, text); err != nil {
			return fmt.Errorf("writing the transcript: %w", err)
		}
	}
	d.change.Broadcast()
	return nil
}

// record writes a text as the kernel does (msg_print_ext_body of kernel/printk/printk.c).
func (d *Device) record(text string) (string, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "", fmt.Errorf("reading the time since boot: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "3,%d,%d,-;", d.next, now.Nano()/1000)
	for _, c := range []byte(text) {
		if c < ' ' || c >= 127 || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
			continue
		}
		b.WriteByte(c)
	}
	b.WriteByte('\n')
	if b.Len() > maxRecord {
		return "", fmt.Errorf("printing a text: its record has %d bytes, and at most %d are possible", b.Len(), maxRecord)
	}
	return b.String(), nil
}

// Reboot empties the ring and restarts its numbers. Who reads the device sees no more
// of it; who opens it afterwards sees the new boot.
func (d *Device) Reboot() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring, d.next, d.boot = nil, 0, d.boot+1
	d.change.Broadcast()
}

// Overwrite loses all records that the ring has; the numbers go on.
func (d *Device) Overwrite() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring = nil
}

// Close ends the device for all who read it, and removes nothing.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	for f := range d.pipes {
		_ = f.Close() // it may be closed already
	}
	d.change.Broadcast()
	d.mu.Unlock()
	err := errors.Join(d.printk.Close(), d.transcript.Close())
	reader, failed := os.OpenFile(d.Path(), os.O_RDONLY|syscall.O_NONBLOCK, 0) // ends accept's wait
	if failed != nil {
		return errors.Join(err, fmt.Errorf("closing a kernel log, whose folder must be there still: %w", failed))
	}
	d.running.Wait()
	return errors.Join(err, reader.Close())
}

// listen prints what is written into printk.
func (d *Device) listen() {
	lines := bufio.NewScanner(d.printk)
	for lines.Scan() {
		if err := d.Print(lines.Text()); err != nil {
			fmt.Fprintln(os.Stderr, "a kernel log of a test:", err)
		}
	}
}

// accept gives each opening of the device a pipe of its own. Nothing is written before
// the next opening has another pipe, so that no reader misses what another one took.
func (d *Device) accept() {
	for !d.over() {
		f, err := os.OpenFile(d.Path(), os.O_WRONLY, 0) // waits for a reader
		if err == nil {
			err = errors.Join(renew(d.Path()), packets(f))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "a kernel log of a test ends:", err)
			return
		}
		d.mu.Lock()
		boot := d.boot
		d.pipes[f] = true
		d.mu.Unlock()
		d.running.Go(func() { d.feed(f, boot) })
	}
}

func (d *Device) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// packets has a read of the pipe return what one write has written, and makes it large.
func packets(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if _, failed = unix.FcntlInt(fd, unix.F_SETFL, unix.O_DIRECT|unix.O_NONBLOCK|unix.O_WRONLY); failed == nil {
			_, failed = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeRecords*os.Getpagesize())
		}
	})
	return errors.Join(err, failed)
}

// feed writes the records of a boot, from the oldest on, until the reader has gone.
func (d *Device) feed(f *os.File, boot int) {
	defer func() {
		d.mu.Lock()
		delete(d.pipes, f)
		d.mu.Unlock()
		_ = f.Close() // it may be closed already
	}()
	for seq := uint64(0); ; {
		records, at, ok := d.await(seq, boot)
		if !ok {
			return
		}
		if err := show(f, records); err != nil {
			return // nobody reads it any more
		}
		seq = at + uint64(len(records))
	}
}

// show writes records at once: a pipe divides a write into packets of a page, and lets
// nobody read before it has taken them all, or is full.
func show(f *os.File, records []string) error {
	page := os.Getpagesize()
	packets := make([]byte, 0, len(records)*page)
	for _, r := range records {
		packets = append(packets, r...)
		packets = append(packets, padding...)
		packets = append(packets, bytes.Repeat([]byte("x"), page-len(r)-len(padding)-1)...)
		packets = append(packets, '\n')
	}
	_, err := f.Write(packets)
	return err
}

// await returns the records from seq on, of which at is the first, and waits for one; not
// ok means that there will be none.
func (d *Device) await(seq uint64, boot int) (records []string, at uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed && d.boot == boot {
		oldest := d.next - uint64(len(d.ring))
		if at = max(seq, oldest); at < d.next {
			return d.ring[at-oldest:], at, true
		}
		d.change.Wait()
	}
	return nil, 0, false
}
