package remediation

import "time"

// Elapsed is the time since began, measured for a limit. A beginning further ahead than
// the whole limit was written by a clock that has been set right since: the limit counts
// as over then, so that no node waits for years.
func Elapsed(began time.Time, limit time.Duration, now time.Time) time.Duration {
	since := now.Sub(began)
	if since < -limit {
		return limit + 1
	}
	return since
}

// Left is what is left of a limit since began; it is not positive when the limit is over.
func Left(began time.Time, limit time.Duration, now time.Time) time.Duration {
	return limit - Elapsed(began, limit, now)
}
