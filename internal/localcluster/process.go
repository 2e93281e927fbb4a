package localcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// errStopped marks a process that ended because it was asked to.
var errStopped = errors.New("stopped")

// nursery starts children. The kernel kills a child when the thread that made it ends, so every
// child of a cluster is made on one thread, which lives as long as the cluster.
type nursery struct {
	work chan func()
	once sync.Once
}

func newNursery() *nursery {
	n := &nursery{work: make(chan func())}
	go func() {
		// Never unlocked: the thread ends with this goroutine and takes forgotten children along.
		runtime.LockOSThread()
		for f := range n.work {
			f()
		}
	}()
	return n
}

func (n *nursery) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	n.work <- func() { result <- cmd.Start() }
	return <-result
}

func (n *nursery) close() { n.once.Do(func() { close(n.work) }) }

// process is one running child.
type process struct {
	name string
	log  string
	pid  int

	mu       sync.Mutex
	stopping bool

	done chan struct{}
	err  error // why it ended; valid once done is closed
}

// spawn starts path with its output appended to the file log. ended is called with a child that
// ends unasked.
func (n *nursery) spawn(name, path, log string, args []string, ended func(*process)) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer out.Close()
	//nolint:noctx // a child lives until Stop, longer than the call that starts it
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	if err := n.start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, log: log, pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		asked := p.stopping
		p.mu.Unlock()
		p.err = errStopped
		if !asked {
			p.err = fmt.Errorf("%s ended unexpectedly: %w. Its log ends with\n%s", name, exitError(err), logTail(log))
		}
		close(p.done)
		if !asked {
			ended(p)
		}
	}()
	return p, nil
}

// exitError gives a child that ended with status 0 an error too: no child should end by itself.
func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// stop kills the child with everything it started, and waits for its end. Data of a cluster is
// thrown away, so nothing is gained by asking politely.
func (p *process) stop() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	select {
	case <-p.done:
		return
	default:
	}
	// The error is of a child that ended meanwhile.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
}
