package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/redfishfake"
)

// TestRequestsGoToConfiguredBMCOnly: a BMC, or who stands in its place, names another host. That is not
// asked, not even under a certificate that would be believed, so that it sees no password.
func TestRequestsGoToConfiguredBMCOnly(t *testing.T) {
	var asked atomic.Int32
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	plain := httptest.NewServer(elsewhere.Config.Handler)
	t.Cleanup(plain.Close)
	for _, to := range []string{elsewhere.URL, plain.URL} {
		for what, signals := range map[string]int{"look": 0, "reset": 1} {
			d, fake := connect(t, nil)
			fake.Fail(what, redfishfake.Fault{Status: http.StatusTemporaryRedirect, Location: to + "/steal"})
			if err := d.Reset(t.Context(), machine, false); err == nil || fake.RequestCount("reset") != signals {
				t.Errorf("%s goes to %s: %v, %d signals", what, to, err, fake.RequestCount("reset"))
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("another host was asked %d times", n)
	}
}
