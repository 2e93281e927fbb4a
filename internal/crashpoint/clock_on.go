//go:build crashpoints

package crashpoint

import (
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the clock that a service reads: the one given, unless a crash test
// wants it to jump.
func Clock(c clock.WithTicker) clock.WithTicker { return clockFor(c, os.Getenv) }

func clockFor(c clock.WithTicker, env func(string) string) clock.WithTicker {
	if file := env("NVSENTINEL_CLOCK"); file != "" {
		return jumping{c, file}
	}
	return c
}

// jumping shows the time plus what stands in a file. Its timers run on, as the
// kernel's do. It is harsher than a clock that is set: the difference of two
// of its times shows the jump also within one process.
type jumping struct {
	clock.WithTicker
	file string
}

// Now is the time that a wrong clock shows.
func (j jumping) Now() time.Time { return j.WithTicker.Now().Add(j.off()) }

// Since is the time since t by a wrong clock.
func (j jumping) Since(t time.Time) time.Duration { return j.Now().Sub(t) }

func (j jumping) off() time.Duration {
	b, err := os.ReadFile(j.file)
	if os.IsNotExist(err) {
		return 0
	}
	if err != nil {
		panic(fmt.Sprintf("reading NVSENTINEL_CLOCK: %v", err))
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil {
		panic(fmt.Sprintf("reading NVSENTINEL_CLOCK: %v", err))
	}
	return d
}
