package kubelet_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// read is a read of a beat, so long after the first one.
type read struct {
	after time.Duration
	beat  kubelet.Beat
}

func lease(value string) kubelet.Beat {
	return kubelet.Beat{Node: "n1", Value: value, Within: time.Minute}
}

func heartbeat(value string) kubelet.Beat {
	return kubelet.Beat{Node: "n1", Value: value, Within: 10 * time.Minute}
}

func of(node types.UID, b kubelet.Beat) kubelet.Beat {
	b.Node = node
	return b
}

func TestLiveness(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const s, m = time.Second, time.Minute
	for name, tt := range map[string]struct {
		reads []read
		at    time.Duration // of the question; the last read's where it is 0
		want  kubelet.State
		until time.Duration
		gap   time.Duration
	}{
		"one read tells nothing":                        {[]read{{0, lease("a")}}, 0, kubelet.Unknown, m, 0},
		"the same value, soon":                          {[]read{{0, lease("a")}, {15 * s, lease("a")}}, 0, kubelet.Unknown, m, 0},
		"the same value for a minute":                   {[]read{{0, lease("a")}, {30 * s, lease("a")}, {60 * s, lease("a")}}, 0, kubelet.Silent, 0, 0},
		"the same value, nobody looked in between":      {[]read{{0, lease("a")}, {time.Hour, lease("a")}}, 0, kubelet.Silent, 0, 0},
		"another value":                                 {[]read{{0, lease("a")}, {15 * s, lease("b")}}, 0, kubelet.Alive, 0, 0},
		"another value, after the longest gap":          {[]read{{0, lease("a")}, {60 * s, lease("b")}}, 0, kubelet.Alive, 0, 0},
		"another value, which may be as old as the gap": {[]read{{0, lease("a")}, {61 * s, lease("b")}}, 0, kubelet.Unknown, 61*s + m, 0},
		"another value, within the gap that is given":   {[]read{{0, lease("a")}, {119 * s, lease("b")}}, 0, kubelet.Alive, 0, 2 * m},
		"a write a minute ago":                          {[]read{{0, lease("a")}, {15 * s, lease("b")}, {75 * s, lease("b")}}, 0, kubelet.Alive, 0, 0},
		"a write that is longer ago":                    {[]read{{0, lease("a")}, {15 * s, lease("b")}, {76 * s, lease("b")}}, 0, kubelet.Silent, 0, 0},
		"silent, then it writes again":                  {[]read{{0, lease("a")}, {70 * s, lease("a")}, {100 * s, lease("b")}}, 0, kubelet.Alive, 0, 0},
		"a heartbeat is waited for for longer":          {[]read{{0, heartbeat("a")}, {9 * m, heartbeat("a")}}, 0, kubelet.Unknown, 10 * m, 0},
		"no heartbeat for ten minutes":                  {[]read{{0, heartbeat("a")}, {10 * m, heartbeat("a")}}, 0, kubelet.Silent, 0, 0},
		"a heartbeat proves it for a minute":            {[]read{{0, heartbeat("a")}, {s, heartbeat("b")}, {3 * m, heartbeat("b")}}, 0, kubelet.Unknown, 10*m + s, 0},
		"another Node of the name":                      {[]read{{0, lease("a")}, {15 * s, of("n2", lease("b"))}}, 0, kubelet.Unknown, 15*s + m, 0},
		"its Lease was deleted":                         {[]read{{0, lease("a")}, {15 * s, heartbeat("b")}}, 0, kubelet.Unknown, 15*s + 10*m, 0},
		"the clock was reset":                           {[]read{{0, lease("a")}, {-time.Hour, lease("b")}}, 0, kubelet.Unknown, -time.Hour + m, 0},
		"asked later than it was read":                  {[]read{{0, lease("a")}}, 2 * m, kubelet.Silent, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := kubelet.Watch{Gap: tt.gap}
			now := start
			for _, r := range tt.reads {
				now = start.Add(r.after)
				w = w.See(r.beat, now)
			}
			if tt.at != 0 {
				now = start.Add(tt.at)
			}
			want := kubelet.Liveness{State: tt.want}
			if tt.want == kubelet.Unknown {
				want.Until = start.Add(tt.until)
			}
			if got := w.Liveness(now); got != want {
				t.Errorf("Life = %+v, want %+v", got, want)
			}
		})
	}
}
