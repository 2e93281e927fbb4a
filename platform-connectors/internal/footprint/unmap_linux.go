package footprint

import (
	"fmt"
	"syscall"
)

// madvCold lets the kernel reclaim pages before others, see madvise(2).
const madvCold = 20

// unmapProgram drops the pages of the program from the process.
func unmapProgram() error {
	found, err := readPrograms()
	if err != nil {
		return err
	}
	for _, m := range found {
		for _, advice := range []uintptr{madvCold, syscall.MADV_DONTNEED} {
			_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, uintptr(m.start), uintptr(m.end-m.start), advice)
			if errno != 0 && advice == syscall.MADV_DONTNEED { // older kernels do not know the other
				return fmt.Errorf("unmapping the program: %w", errno)
			}
		}
	}
	return nil
}
