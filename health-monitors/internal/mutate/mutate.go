// Package mutate feeds a parser with damaged copies of known inputs, for the
// short fuzzing of every test run. The long one is go test -fuzz on the same
// property.
package mutate

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Each calls check with n damaged copies of the seeds. The damage is the same in
// every run; a failing input is printed.
func Each(t *testing.T, n int, seeds []string, check func(t *testing.T, raw []byte)) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		raw := []byte(seeds[r.IntN(len(seeds))])
		for range 1 + r.IntN(4) {
			raw = damage(r, raw, seeds)
		}
		if !t.Run(fmt.Sprint(i), func(t *testing.T) { check(t, raw) }) {
			t.Fatalf("input was %q", raw)
		}
	}
}

// digits and marks are what the parsers decide by.
const marks = "0123456789abcdefx:;.,=()[]{}\"\\ \n\x00\xff"

func damage(r *rand.Rand, raw []byte, seeds []string) []byte {
	at := r.IntN(len(raw) + 1)
	switch r.IntN(6) {
	case 0: // cut
		return raw[:at]
	case 1: // change a byte
		if at < len(raw) {
			raw[at] = marks[r.IntN(len(marks))]
		}
		return raw
	case 2: // add bytes
		junk := make([]byte, r.IntN(20))
		for i := range junk {
			junk[i] = byte(r.Uint32())
		}
		return join(raw[:at], junk, raw[at:])
	case 3: // take bytes out
		return join(raw[:at], raw[min(len(raw), at+r.IntN(8)):])
	case 4: // repeat a part
		part := raw[at:min(len(raw), at+1+r.IntN(12))]
		for range r.IntN(6) {
			raw = join(raw[:at], part, raw[at:])
		}
		return raw
	default: // go on with another seed
		other := seeds[r.IntN(len(seeds))]
		return join(raw[:at], []byte(other[r.IntN(len(other)+1):]))
	}
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
