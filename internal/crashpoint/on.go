//go:build crashpoints

package crashpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled reports whether the build has crash points.
const Enabled = true

var points = sync.OnceValue(func() *schedule { return read(os.Getenv) })

// Here marks a place where a crash test may kill or freeze the process.
func Here(point string) {
	switch points().hit(point) {
	case kill:
		die()
	case freeze:
		stop()
	case pass:
	}
}

// DieOf ends the process at a text that a crash test has made fatal, as no panic
// that is caught would.
func DieOf(text string) {
	if fatal := points().fatal; fatal != "" && strings.Contains(text, fatal) {
		go panic("a crash test: " + text)
		select {}
	}
}

// action is what a hit does to the process.
type action int

const (
	pass action = iota
	kill
	freeze
)

// schedule is what the environment asked for.
type schedule struct {
	log, once, fatal string

	mu   sync.Mutex
	left map[action]map[string]int // hits until the action
}

func read(env func(string) string) *schedule {
	p := &schedule{
		log: env("NVSENTINEL_CRASH_LOG"), once: env("NVSENTINEL_CRASH_ONCE"), fatal: env("NVSENTINEL_FATAL_TEXT"),
		left: map[action]map[string]int{},
	}
	p.left[kill] = count("NVSENTINEL_CRASH", env)
	p.left[freeze] = count("NVSENTINEL_FREEZE", env)
	return p
}

// count reads a list of point[:N].
func count(name string, env func(string) string) map[string]int {
	left := map[string]int{}
	for _, item := range split(env(name)) {
		point, number, counted := strings.Cut(item, ":")
		n := 1
		if counted {
			var err error
			if n, err = strconv.Atoi(number); err != nil || n < 1 {
				panic(fmt.Sprintf("%s: %q is not point:N with N of at least 1", name, item))
			}
		}
		left[point] = n
	}
	return left
}

func split(list string) []string {
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// hit logs one hit and returns what it does.
func (s *schedule) hit(point string) action {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(point)
	for _, a := range []action{kill, freeze} {
		left := s.left[a][point]
		if left < 1 {
			continue
		}
		s.left[a][point] = left - 1
		if left == 1 && s.first(a, point) {
			return a
		}
	}
	return pass
}

// write appends one line in one write, so that services can share the file.
func (s *schedule) write(point string) {
	if s.log == "" {
		return
	}
	f, err := os.OpenFile(s.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(fmt.Sprintf("opening NVSENTINEL_CRASH_LOG: %v", err))
	}
	defer f.Close()
	service, _, _ := strings.Cut(point, "/")
	if _, err := f.WriteString(service + " " + point + "\n"); err != nil {
		panic(fmt.Sprintf("writing NVSENTINEL_CRASH_LOG: %v", err))
	}
}

// first leaves the point's marker before the action; a marker that is there
// already means that the point has acted before, in this or another process.
func (s *schedule) first(a action, point string) bool {
	if s.once == "" {
		return true
	}
	name := strings.ReplaceAll(point, "/", "_")
	if a == freeze {
		name += ".frozen"
	}
	f, err := os.OpenFile(filepath.Join(s.once, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if os.IsExist(err) {
		return false
	}
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		panic(fmt.Sprintf("marking a crash in NVSENTINEL_CRASH_ONCE: %v", err))
	}
	if err := f.Close(); err != nil {
		panic(fmt.Sprintf("marking a crash in NVSENTINEL_CRASH_ONCE: %v", err))
	}
	return true
}

// die kills the process as a power cut would and never returns.
func die() {
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
		panic(fmt.Sprintf("killing myself: %v", err))
	}
	select {}
}

// stop freezes the process here and now: the signal is this thread's own, so
// that it does nothing more until somebody sends SIGCONT.
func stop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), syscall.SIGSTOP); err != nil {
		panic(fmt.Sprintf("freezing myself: %v", err))
	}
}
