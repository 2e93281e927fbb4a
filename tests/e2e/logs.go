package e2e

import (
	"bufio"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// unwanted are words that no service's log has: a certificate that is not believed, a
// program that is wrong.
var unwanted = []string{"x509", "panic:", "fatal error:"}

// denied are words for a missing right. A workload that is removed from a release may log them
// before it ends: its rights go before its pods do.
var denied = []string{"forbidden", "Unauthenticated", "PermissionDenied"}

// complaint is a line that should not be.
type complaint struct {
	pod, line string
	// service is the one that logs the line, where a pod runs several.
	service string
	denied  bool
}

// shared is the workload whose pods run several services.
const shared = "nvsentinel-controller"

// of reports whether an installed workload, or a controller in one, logged the line.
func (c complaint) of(installed []string) bool {
	its := c.service == "" || c.service == shared || slices.Contains(installed, c.service)
	return slices.ContainsFunc(installed, func(workload string) bool {
		return strings.HasPrefix(c.pod, workload+"-") && (workload != shared || its)
	})
}

// logs reads the logs of all pods of the installation, also of those that go.
type logs struct {
	mu       sync.Mutex
	files    map[string]*tail
	reported []complaint
	lines    int
}

// tail is a file as far as it was read, and the beginning of a line without its end.
type tail struct {
	*bufio.Reader
	begun string
}

// follow reads all logs below a folder until ctx ends.
func follow(ctx context.Context, folder string) *logs {
	l := &logs{files: map[string]*tail{}}
	go func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.read(folder)
			<-tick.C
		}
	}()
	return l
}

// read reads what is new. A file that is open is read to its end although it is gone.
func (l *logs) read(folder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && l.files[path] == nil && strings.Contains(path, "/"+namespace+"_") {
			if file, err := os.Open(path); err == nil {
				l.files[path] = &tail{Reader: bufio.NewReader(file)}
			}
		}
		return nil // what has gone meanwhile is passed over
	})
	for path, file := range l.files {
		for {
			text, err := file.ReadString('\n')
			file.begun += text
			if err != nil { // as far as it is written
				break
			}
			l.checkLine(path, file.begun)
			file.begun = ""
		}
	}
}

// checkLine notes a line that should not be.
func (l *logs) checkLine(path, line string) {
	l.lines++
	has := func(word string) bool { return strings.Contains(line, word) }
	wrong := slices.ContainsFunc(unwanted, has)
	if wrong || slices.ContainsFunc(denied, has) {
		_, pod, _ := strings.Cut(filepath.Base(filepath.Dir(filepath.Dir(path))), "_")
		l.reported = append(l.reported, complaint{pod: pod, line: strings.TrimSpace(line), service: serviceOf(line), denied: !wrong})
	}
}

// serviceOf is the service in a line of a log, empty if it names none. The process of
// profile small that may not act as a controller speaks of that one, also where a library
// logs it for the whole process.
func serviceOf(line string) string {
	if _, rest, found := strings.Cut(line, `serviceaccounts \"`); found && strings.Contains(rest, "cannot impersonate") {
		name, _, _ := strings.Cut(rest, `\"`)
		return name
	}
	_, rest, _ := strings.Cut(line, `"service":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// complaints are all such lines since the last call, but for rights that are missing to
// what is not installed any more.
func (l *logs) complaints(installed []string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.reported {
		if !c.denied || c.of(installed) {
			out = append(out, c.pod+": "+c.line)
		}
	}
	l.reported = nil
	return out
}

// count is how many lines were read, of how many containers.
func (l *logs) count() (lines, files int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines, len(l.files)
}
