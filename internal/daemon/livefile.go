package daemon

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// FilesEvery is how often the files are looked at. They are read and compared instead of
// watched: a mounted ConfigMap is a link that is exchanged, which no watch of the file
// sees.
const FilesEvery = 2 * time.Second

// FileFollower takes the content of files over whenever it has changed, and as long as it
// is not taken. What is not taken leaves what was before in force.
type FileFollower struct {
	// Files names those whose content counts; it is asked at every look. One that
	// cannot be read is another content.
	Files func() []string
	// Take reads the files and takes them over whole, or with an error not at all.
	// It may be called more often than they change.
	Take func() error
	// Told hears once what became of a changed content: nil is taken, else why not.
	Told  func(error)
	Clock clock.WithTicker

	seen map[string]string // contents by file; of the task alone

	mu      sync.Mutex
	trouble string
}

// Start takes the files over for the first time. Without it the first look of Run
// does, and says so only if that fails.
func (f *FileFollower) Start() error {
	f.compare()
	return f.Take()
}

// Run looks at the files until ctx ends.
func (f *FileFollower) Run(ctx context.Context) error {
	ticker := f.Clock.NewTicker(FilesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			f.look()
		}
	}
}

// Trouble is why what is on disk is not in force; empty if it is.
func (f *FileFollower) Trouble() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

func (f *FileFollower) look() {
	changed, more := f.compare()
	before, now := f.Trouble(), ""
	if !changed && !more && before == "" {
		return
	}
	err := f.Take()
	if err != nil {
		now = err.Error()
	}
	f.mu.Lock()
	f.trouble = now
	f.mu.Unlock()
	if changed || now != before {
		f.Told(err)
	}
}

// compare reads the files: changed are contents of before, more are files that were
// not among them.
func (f *FileFollower) compare() (changed, more bool) {
	if f.seen == nil {
		f.seen = map[string]string{}
	}
	for _, file := range f.Files() {
		text, err := os.ReadFile(file)
		now := fmt.Sprintf("%v\x00%s", err, text)
		before, known := f.seen[file]
		changed, more = changed || known && before != now, more || !known
		f.seen[file] = now
	}
	return changed, more
}
