package durable

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errChecksum is the error of file systems whose own checksum does not match.
const errChecksum = syscall.EUCLEAN

// SyncData makes what was written to a file durable, with its size if that
// changed, but not its times: over blocks that were written before there is
// nothing of the file system's journal to wait for.
func SyncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("syncing the data of %s: %w", f.Name(), err)
		}
		return nil
	}
}
