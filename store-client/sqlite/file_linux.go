package sqlite

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileID distinguishes a file from earlier and later files at the same path: inode numbers are
// reused, with another creation time.
func fileID(path string) string {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return ""
	}
	return fmt.Sprintf("%x.%x", s.Ino, s.Btime.Sec*1_000_000_000+int64(s.Btime.Nsec))
}
