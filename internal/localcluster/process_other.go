//go:build !linux

package localcluster

import "syscall"

// childAttributes put a child in a process group of its own. Only Linux can promise that a child
// dies with a killed parent; elsewhere Stop has to run.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
