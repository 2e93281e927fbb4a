//go:build !crashpoints

package crashpoint

import "k8s.io/utils/clock"

// Clock is the clock that a service reads: the one given, unless a crash test
// wants it to jump.
func Clock(c clock.WithTicker) clock.WithTicker { return c }
