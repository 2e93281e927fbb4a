package localcluster

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// progressEvery is how often what takes long reports that it goes on.
const progressEvery = 10 * time.Second

// tailBytes is how much of a log an error shows.
const tailBytes = 2 << 10

// progressWriter writes progress for a person who waits.
type progressWriter struct {
	mu    sync.Mutex
	out   io.Writer
	clock clock.WithTicker
}

func newProgressWriter(out io.Writer) *progressWriter {
	if out == nil {
		out = io.Discard
	}
	return &progressWriter{out: out, clock: clock.RealClock{}}
}

func (p *progressWriter) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "local cluster: "+format+"\n", args...)
}

// task announces a piece of work, reports every ten seconds that it goes on, and returns the
// function that ends it.
func (p *progressWriter) task(name string) (finished func(error)) {
	began := p.clock.Now()
	elapsed := func() time.Duration { return p.clock.Since(began).Round(100 * time.Millisecond) }
	p.line("%s ...", name)

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := p.clock.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C():
				p.line("%s: still busy after %s", name, elapsed())
			}
		}
	}()
	return func(err error) {
		close(stop)
		<-stopped
		if err != nil {
			p.line("%s: failed after %s", name, elapsed())
			return
		}
		p.line("%s: done in %s", name, elapsed())
	}
}

// tail returns the last lines of a text.
func tail(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) > tailBytes {
		text = text[len(text)-tailBytes:]
		if at := bytes.IndexByte(text, '\n'); at >= 0 {
			text = text[at+1:]
		}
	}
	return string(text)
}

// logTail returns the last lines of a log file, or why it cannot be read.
func logTail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return tail(text)
}
