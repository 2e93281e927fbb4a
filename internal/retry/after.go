package retry

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// After reads the header Retry-After (RFC 9110, section 10.2.3): seconds
// or a date. ok is false if it is neither; a date that is past is no wait.
func After(header string, now time.Time) (d time.Duration, ok bool) {
	header = strings.TrimSpace(header)
	if header == "" {
		return 0, false
	}
	if strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.ParseInt(header, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64, true // more than can be counted
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(now)), true
}
