package testkit

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// parent starts children from a thread that stays, because the kernel kills a child
// with Pdeathsig when the thread that made it ends.
var parent = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

// StartChild starts a process that ends with the test's own, however that ends.
func StartChild(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	parent() <- func() { started <- cmd.Start() }
	return <-started
}
