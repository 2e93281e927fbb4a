//go:build crashpoints

package crashpoint

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

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

// jumping shows the time plus what stands in a file, as a clock does that was
// set: the wall time jumps, the monotonic time runs on. So times that were
// stored or sent show the jump, differences within one process do not.
type jumping struct {
	clock.WithTicker
	file string
}

// Now is the time that a wrong clock shows.
func (j jumping) Now() time.Time { return set(j.WithTicker.Now(), j.off()) }

// set moves the wall time of t by whole seconds and leaves its monotonic time.
// Package time offers no way to, because only the kernel does this; a time with
// a monotonic reading keeps its wall seconds in the 33 bits above the
// nanoseconds (source: the comment on time.Time).
func set(t time.Time, by time.Duration) time.Time {
	const nanosecondBits, monotonicBit = 30, 63
	wall := (*uint64)(unsafe.Pointer(&t))
	if *wall>>monotonicBit == 0 {
		return t.Add(by)
	}
	*wall += uint64(by/time.Second) << nanosecondBits
	return t
}

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
