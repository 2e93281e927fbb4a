//go:build !linux

package durable

import (
	"os"
	"syscall"
)

// errChecksum is the error of file systems that have no other for a checksum.
const errChecksum = syscall.EIO

// SyncData makes what was written to a file durable.
func SyncData(f *os.File) error { return f.Sync() }
