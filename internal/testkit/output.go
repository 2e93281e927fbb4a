package testkit

import (
	"strings"
	"sync"
)

// Output is what a process writes, read while it runs.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
