package decision

import "time"

// SameRepair and the parts of Needs are for tests.
var (
	SameRepair     = sameRepair
	NeedsNode      = needsNode
	MayCreate      = mayCreate
	DrainedJustNow = drainedJustNow
	FirstOfSession = firstOfSession
)

// Elapsed is for tests.
func Elapsed(now, began time.Time, period time.Duration) time.Duration {
	return decision{now: now}.elapsed(began, period)
}
