package decision

import "time"

// SameRepair is for tests.
var SameRepair = sameRepair

// Elapsed is for tests.
func Elapsed(now, began time.Time, period time.Duration) time.Duration {
	return decision{now: now}.elapsed(began, period)
}
