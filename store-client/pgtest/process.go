package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// child is one run of the server's process; done is closed at its end.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs the process from a thread that lives as long as it: the death
// signal is sent when the thread ends.
func (c *child) start() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			// How it ended is in the server's log.
			_ = c.cmd.Wait()
		}
	}()
	return <-started
}

// Kill ends the server as a crash would: nothing is flushed, connections break.
func (s *Server) Kill() error { return s.end(syscall.SIGQUIT) }

// Slay ends every process of the server with SIGKILL: nothing is flushed, and
// no process of it can react to the death of another.
func (s *Server) Slay() error {
	pid := s.child.cmd.Process.Pid
	// It must not start another process meanwhile.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("killing PostgreSQL: %w", err)
	}
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	problems := []error{err, syscall.Kill(pid, syscall.SIGKILL)}
	for word := range strings.FieldsSeq(string(list)) {
		backend, err := strconv.Atoi(word)
		if err == nil {
			err = syscall.Kill(backend, syscall.SIGKILL)
		}
		if !errors.Is(err, syscall.ESRCH) {
			problems = append(problems, err)
		}
	}
	<-s.child.done
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("killing PostgreSQL: %w", err)
	}
	return nil
}

// Restart starts a server that was killed, on the same data and address.
func (s *Server) Restart(ctx context.Context) error { return s.run(ctx) }

// Stop ends the server and removes a temporary folder.
func (s *Server) Stop() error { return errors.Join(s.end(syscall.SIGINT), s.remove()) }

func (s *Server) end(sig syscall.Signal) error {
	select {
	case <-s.child.done:
		return nil
	default:
	}
	if err := s.child.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	<-s.child.done
	return nil
}

func (s *Server) remove() error {
	if !s.temporary {
		return nil
	}
	return os.RemoveAll(s.dir)
}
