package kube_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// off is a machine's clock that is wrong.
type off struct {
	clock.RealClock
	by time.Duration
}

func (o *off) Now() time.Time { return o.RealClock.Now().Add(o.by) }

// server answers every request, after a while, with its time as its Date.
type server struct {
	takes time.Duration
	date  func() string
}

func (s server) RoundTrip(*http.Request) (*http.Response, error) {
	date := s.date()
	time.Sleep(s.takes)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
}

func right() string { return time.Now().UTC().Format(http.TimeFormat) }

func TestClockIsHeldToTheServersTime(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server server
		own    time.Duration
		want   time.Duration // off the true time
	}{
		{"a day ahead", server{0, right}, 24 * time.Hour, 0},
		{"a day behind", server{0, right}, -24 * time.Hour, 0},
		{"seconds off", server{0, right}, 5 * time.Second, 0},
		{"nearly right stays its own", server{0, right}, time.Second, time.Second},
		{"an answer that took long tells nothing", server{time.Minute, right}, time.Hour, time.Hour},
		{"no date", server{0, func() string { return "" }}, time.Hour, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rc := &rest.Config{Host: "http://server.test", Transport: tt.server}
				client, err := kube.ForConfig(rc, kube.Config{}, "test")
				if err != nil {
					t.Fatal(err)
				}
				own := &off{}
				now := client.Clock(own)
				if got := now.Now(); !got.Equal(time.Now()) {
					t.Errorf("before any answer: %s, want its own time", got)
				}
				client.Clientset.CoreV1().RESTClient().Get().AbsPath("/").Do(t.Context())
				own.by = tt.own // after the answer: its time still holds
				time.Sleep(time.Hour)
				if got := time.Until(now.Now()); got < tt.want-time.Second || got > tt.want+time.Second {
					t.Errorf("off by %s, want %s", got, tt.want)
				}
				if got := now.Since(time.Now().Add(-time.Hour)); got < time.Hour+tt.want-time.Second || got > time.Hour+tt.want+time.Second {
					t.Errorf("since an hour ago: %s", got)
				}
			})
		})
	}
}
