package forwarder

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

// late is a queue whose last entry appears ten seconds after the others. Nothing
// ends it.
type late struct {
	*queue
	at time.Time
}

func (l late) Bounds() (uint64, uint64) {
	n := uint64(len(l.entries))
	if time.Now().Before(l.at) {
		n--
	}
	return 0, n
}

func (l late) Read(after uint64, limit int) ([]spool.Entry, uint64, error) {
	_, committed := l.Bounds()
	upTo := min(after+uint64(limit), committed)
	return l.entries[after:upTo], upTo, nil
}

func (l late) Wait(ctx context.Context, after uint64) error {
	for _, n := l.Bounds(); after >= n; _, n = l.Bounds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

// tallied is a forwarder of so many entries, all of which are repeats.
func tallied(n int, b *fakeStore) (*Forwarder, *queue) {
	q := &queue{entries: entries(n)}
	return newForwarder(late{q, time.Now().Add(10 * time.Second)}, q, b, time.Minute), q
}

// runFor forwards so long, in the bubble's time.
func runFor(t *testing.T, r *Forwarder, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// rows are the stored records as "<id>x<events>".
func rows(b *fakeStore) string {
	var out []string
	for _, r := range b.stored {
		n, _ := r.Event.Repeats()
		text := fmt.Sprint(r.ID, "x", n)
		if !r.Acts() {
			text += "-" + r.Event.Metadata[record.MetadataRepeatOf]
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// TestAThousandRepeatsAreTwoRows, however often the store fails, and nobody has to
// send anything for the second one.
func TestAThousandRepeatsAreTwoRows(t *testing.T) {
	for after, want := range map[time.Duration]struct {
		rows               string
		confirmed, counted int
	}{50 * time.Second: {"0x1", 1, 0}, 3 * time.Minute: {"0x1 999x999", 1000, 998}} {
		synctest.Test(t, func(t *testing.T) {
			b := &fakeStore{failures: 3}
			r, q := tallied(1000, b)
			runFor(t, r, after)
			if got := rows(b); got != want.rows || q.confirmed != uint64(want.confirmed) {
				t.Errorf("after %v there is %q, and the spool is released up to %d", after, got, q.confirmed)
			}
			if n := testutil.ToFloat64(r.Tally.events); n != float64(want.counted) {
				t.Errorf("counted %v", n)
			}
		})
	}
}

// TestACrashLosesNoRepeat: what was counted and not stored is read again.
func TestACrashLosesNoRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeStore{}
		r, q := tallied(10, b)
		runFor(t, r, 30*time.Second)
		again, left := tallied(10, b)
		left.entries = left.entries[q.confirmed:]
		for i := range left.entries {
			left.entries[i].Index = uint64(i) + 1
		}
		runFor(t, again, 3*time.Minute)
		if got := rows(b); got != "0x1 1x1 9x8" || left.confirmed != 9 {
			t.Errorf("there is %q, and the spool is released up to %d", got, left.confirmed)
		}
	})
}

// TestARefusedFirstHidesNoRepeat: the store will never have it.
func TestARefusedFirstHidesNoRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeStore{refuse: map[string]bool{"0": true}}
		r, _ := tallied(2, b)
		runFor(t, r, 20*time.Second)
		if got := rows(b); got != "1x1" {
			t.Errorf("there is %q", got)
		}
	})
}

// TestAPersonEndsTheWindow: what follows is new, what was counted before begins
// nothing again.
func TestAPersonEndsTheWindow(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodemark.SessionAnnotation: "s", "other": "x"}},
			Spec:       corev1.NodeSpec{Unschedulable: true},
		}
		change(n)
		return n
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"nothing":          {func(*corev1.Node) {}, "0x1 3x3"},
		"another note":     {func(n *corev1.Node) { n.Annotations["other"] = "y" }, "0x1 3x3"},
		"an uncordon":      {func(n *corev1.Node) { n.Spec.Unschedulable = false }, "0x1 2x2-0 3x1"},
		"the session over": {func(n *corev1.Node) { delete(n.Annotations, nodemark.SessionAnnotation) }, "0x1 2x2-0 3x1"},
		"another session":  {func(n *corev1.Node) { n.Annotations[nodemark.SessionAnnotation] = "t" }, "0x1 2x2-0 3x1"},
		"a clearing":       {func(n *corev1.Node) { n.Annotations[nodemark.ClearPrefix+"0"] = "ada: done" }, "0x1 2x2-0 3x1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fakeStore{}
				r, _ := tallied(4, b)
				r.Tally.See(nil)
				r.Tally.See(node(func(*corev1.Node) {}))
				time.AfterFunc(5*time.Second, func() { r.Tally.See(node(tc.change)) })
				runFor(t, r, 3*time.Minute)
				if got := rows(b); got != tc.want {
					t.Errorf("there is %q, want %q", got, tc.want)
				}
				// The first call after the end of faults carries the reset to the gateway.
				if ended := strings.Contains(tc.want, "2x2-0"); b.afterReset != map[bool]int{true: 1}[ended] {
					t.Errorf("%d appends say that faults were ended by hand", b.afterReset)
				}
			})
		})
	}
}
