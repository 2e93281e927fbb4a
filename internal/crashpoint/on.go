//go:build crashpoints

package crashpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var points = sync.OnceValue(func() *plan { return read(os.Getenv) })

// Here marks a place where a crash test may kill the process.
func Here(point string) {
	if points().hit(point) {
		die()
	}
}

// Sabotaged tells whether a crash test asked for a named fault of ours.
func Sabotaged(name string) bool { return points().sabotage[name] }

// plan is what the environment asked for.
type plan struct {
	log      string
	once     string
	sabotage map[string]bool

	mu   sync.Mutex
	left map[string]int // hits until the kill
}

func read(env func(string) string) *plan {
	p := &plan{
		log: env("NVSENTINEL_CRASH_LOG"), once: env("NVSENTINEL_CRASH_ONCE"),
		sabotage: map[string]bool{}, left: map[string]int{},
	}
	for _, item := range split(env("NVSENTINEL_CRASH")) {
		point, count, counted := strings.Cut(item, ":")
		n := 1
		if counted {
			var err error
			if n, err = strconv.Atoi(count); err != nil || n < 1 {
				panic(fmt.Sprintf("NVSENTINEL_CRASH: %q is not point:N with N of at least 1", item))
			}
		}
		p.left[point] = n
	}
	for _, name := range split(env("NVSENTINEL_SABOTAGE")) {
		p.sabotage[name] = true
	}
	return p
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

// hit logs one hit and tells whether it is the one that kills.
func (p *plan) hit(point string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(point)
	left, asked := p.left[point]
	if !asked || left < 1 {
		return false
	}
	p.left[point] = left - 1
	return left == 1 && p.first(point)
}

// write appends one line in one write, so that services can share the file.
func (p *plan) write(point string) {
	if p.log == "" {
		return
	}
	f, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(fmt.Sprintf("opening NVSENTINEL_CRASH_LOG: %v", err))
	}
	defer f.Close()
	service, _, _ := strings.Cut(point, "/")
	if _, err := f.WriteString(service + " " + point + "\n"); err != nil {
		panic(fmt.Sprintf("writing NVSENTINEL_CRASH_LOG: %v", err))
	}
}

// first leaves the point's marker before the kill; a marker that is there
// already means that the point has killed before.
func (p *plan) first(point string) bool {
	if p.once == "" {
		return true
	}
	marker := filepath.Join(p.once, strings.ReplaceAll(point, "/", "_"))
	f, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if os.IsExist(err) {
		return false
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
