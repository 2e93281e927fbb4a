package source

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// device is /dev/kmsg: one Next is one record, EPIPE where records were
// overwritten.
type device interface {
	// Next reads a record, and waits for one if there is none; before it waits it
	// calls idle. It fails with os.ErrClosed once the device is closed.
	Next(buf []byte, idle func()) (int, error)
	Close() error
}

// devicePollInterval is how often a device that wakes nobody is read all the same: a
// wake-up that the kernel forgets costs no more than that.
const devicePollInterval = time.Second

// kmsgDevice waits in the runtime's poller, epoll(7), so that a record is read
// when it is written and a closed device ends the wait.
type kmsgDevice struct {
	file *os.File
	raw  syscall.RawConn
}

func openDevice(path string) (device, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &kmsgDevice{f, raw}, nil
}

func (d *kmsgDevice) Next(buf []byte, idle func()) (int, error) {
	for {
		var n int
		var readErr error
		err := d.raw.Read(func(fd uintptr) bool {
			n, readErr = syscall.Read(int(fd), buf)
			empty := errors.Is(readErr, syscall.EAGAIN)
			if !empty && (n > 0 || readErr != nil) {
				return true
			}
			if empty { // a pipe of a test that has no writer yet returns nothing and no error
				idle()
			}
			// The poller's own time. An error: it cannot be polled, and then the
			// wait fails at once.
			_ = d.file.SetReadDeadline(clock.RealClock{}.Now().Add(devicePollInterval))
			return false
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := d.file.SetReadDeadline(time.Time{}); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, err
		default:
			return n, readErr
		}
	}
}

func (d *kmsgDevice) Close() error { return d.file.Close() }

// uptime is the time since boot by the clock that kernel records carry, but for
// the seconds by which the kernel's two clocks drift apart over weeks.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // not on any kernel that runs this program
	}
	return time.Duration(ts.Nano())
}

// syslogSizeBuffer is SYSLOG_ACTION_SIZE_BUFFER of syslog(2).
const syslogSizeBuffer = 10

// RingBytes is the size of the kernel's ring in bytes.
func RingBytes() (int, error) { return unix.Klogctl(syslogSizeBuffer, nil) }
