package localcluster

import "syscall"

// childAttributes put a child in a process group of its own, so that a Ctrl-C meant for the
// parent does not reach it, and let the kernel kill it when the parent dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
