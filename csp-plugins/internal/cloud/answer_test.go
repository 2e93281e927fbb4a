package cloud

import (
	"testing"

	"google.golang.org/grpc/codes"
)

// No HTTP status alone ends a repair.
func TestUnlisted(t *testing.T) {
	for status := range 600 {
		switch code := Unlisted(status); code {
		case codes.Aborted:
			if status < 400 || status >= 500 || status == 408 {
				t.Errorf("%d says that nothing was done", status)
			}
		case codes.Unavailable:
			if status >= 400 && status < 500 && status != 408 {
				t.Errorf("%d leaves open what was done", status)
			}
		case codes.Unauthenticated, codes.ResourceExhausted:
			if status != 401 && status != 429 {
				t.Errorf("%d: %s", status, code)
			}
		default:
			t.Errorf("%d: %s ends a repair", status, code)
		}
	}
}
