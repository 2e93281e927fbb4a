package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// restartDelay is how soon a service that ended is started again, as a kubelet
// would do (without its backoff: the chaos tests kill often).
const restartDelay = 150 * time.Millisecond

// launcher starts children from one thread that lives as long as this process:
// the kernel kills a child when the thread that made it ends.
type launcher struct{ work chan func() }

func newLauncher() *launcher {
	l := &launcher{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range l.work {
			f()
		}
	}()
	return l
}

func (l *launcher) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	l.work <- func() { result <- cmd.Start() }
	return <-result
}

// Service is one supervised process: it is started again whenever it ends,
// until it is stopped.
type Service struct {
	Name string
	Log  string

	launcher *launcher
	path     string
	args     []string

	mu      sync.Mutex
	instead string // of path, unless empty
	env     []string
	cmd     *exec.Cmd
	over    chan struct{} // closed when the present run has ended
	starts  int
	stopped bool
	frozen  bool // each run, until Freeze(false) or Kill
	done    chan struct{}
}

func (l *launcher) supervise(name, path, log string, args, env []string) *Service {
	s := &Service{Name: name, Log: log, launcher: l, path: path, args: args, env: env, done: make(chan struct{})}
	go s.run()
	return s
}

func (s *Service) run() {
	defer close(s.done)
	for {
		cmd, err := s.startOnce()
		if err != nil {
			s.note("cannot start: " + err.Error())
		}
		if cmd == nil && err == nil {
			return
		}
		if cmd != nil {
			err := cmd.Wait()
			close(s.over)
			s.note("ended: " + ended(err))
		}
		if s.isStopped() {
			return
		}
		time.Sleep(restartDelay)
	}
}

// startOnce starts the process, or returns nil when the service is stopped.
func (s *Service) startOnce() (*exec.Cmd, error) {
	out, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, nil
	}
	program := cmp.Or(s.instead, s.path)
	cmd := exec.Command(program, argsOf(program, s.args)...)
	cmd.Env = append(slices.Clone(os.Environ()), s.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.launcher.start(cmd); err != nil {
		return nil, err
	}
	s.starts++
	s.cmd, s.over = cmd, make(chan struct{})
	if s.frozen {
		s.send(syscall.SIGSTOP)
	}
	return cmd, nil
}

func (s *Service) note(text string) {
	if f, err := os.OpenFile(s.Log, os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintf(f, "-- supervisor: %s %s\n", s.Name, text)
		f.Close()
	}
}

func ended(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

func (s *Service) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// Starts counts how often the process was started.
func (s *Service) Starts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts
}

// PID is the process id of the present run; 0 while none runs.
func (s *Service) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || s.cmd.Process == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// SetEnv changes the environment of later starts.
func (s *Service) SetEnv(env []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env = env
}

// Instead has later starts run another program, or the service's own if it is empty.
func (s *Service) Instead(program string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instead = program
}

// Kill sends SIGKILL; the supervisor starts the process again.
func (s *Service) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = false
	s.send(syscall.SIGKILL)
}

// Restart ends the process politely; the supervisor starts it again.
func (s *Service) Restart() { s.signal(syscall.SIGTERM) }

// Swap kills the process, does something while none runs, and lets the
// supervisor start it again.
func (s *Service) Swap(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil && s.cmd.Process != nil {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.over
	}
	return do()
}

// Freeze stops the process in its tracks, or lets it go on. Where none runs, the
// next one is stopped at its start.
func (s *Service) Freeze(frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = frozen
	if frozen {
		s.send(syscall.SIGSTOP)
	} else {
		s.send(syscall.SIGCONT)
	}
}

// Thaw lets a process go on that has stopped itself, unless Freeze holds it.
func (s *Service) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.frozen {
		s.send(syscall.SIGCONT)
	}
}

// signal sends a signal to the process.
func (s *Service) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(sig)
}

// send is signal for who holds the lock.
func (s *Service) send(sig syscall.Signal) {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = syscall.Kill(-s.cmd.Process.Pid, sig)
	}
}

// Stop ends the process for good: politely first, then by force.
func (s *Service) Stop(ctx context.Context) {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-ctx.Done():
		s.signal(syscall.SIGKILL)
		<-s.done
	}
}

// Tail is the end of the service's log.
func (s *Service) Tail(lines int) string {
	b, err := os.ReadFile(s.Log)
	if errors.Is(err, os.ErrNotExist) {
		return "(no log)"
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
