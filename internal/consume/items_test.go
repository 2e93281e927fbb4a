package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/internal/consume"
)

// sender is a loop whose handler does the deliveries themselves; all have one key.
func sender(f *tape, items func(waiting []string) (int, error)) *consume.Loop[string] {
	l := loop(f, nil)
	l.Key = func(string) string { return "lane" }
	l.Weight = func(s string) int { return len(s) }
	l.Items = func(_ context.Context, _ string, waiting []string) (int, error) { return items(waiting) }
	return l
}

// TestItemsAreDoneInOrder: each once, some at a time, the position behind those that
// are done and no further, also when others fail.
func TestItemsAreDoneInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{}
		var want, got []string
		for i := range 20 {
			want = append(want, fmt.Sprintf("%02d", i))
		}
		f.keys = slices.Clone(want)
		stuck := true
		l := sender(f, func(waiting []string) (int, error) {
			if waiting[0] == "10" && stuck {
				return 0, errors.New("the receiver is away")
			}
			n := min(3, len(waiting))
			if at := slices.Index(waiting[:n], "10"); stuck && at > 0 {
				got = append(got, waiting[:at]...)
				return at, errors.New("the receiver is away")
			}
			got = append(got, waiting[:n]...)
			return n, nil
		})
		stop := begin(t, l)
		<-time.After(time.Minute)
		synctest.Wait()
		var oldest []string
		l.Oldest(func(s string) { oldest = append(oldest, s) })
		if !slices.Equal(got, want[:10]) || f.position() > 10 || !slices.Equal(oldest, []string{"10"}) || len(l.Waiting("lane")) != 10 {
			t.Errorf("done %v, position %d, oldest %v, %d wait", got, f.position(), oldest, len(l.Waiting("lane")))
		}
		stuck = false
		f.add("20")
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if !slices.Equal(got, append(want, "20")) || f.position() != 21 || len(l.Waiting("lane")) != 0 {
			t.Errorf("done %v, position %d", got, f.position())
		}
		stop()
	})
}

// TestItemsAreReadAheadWithinBounds of number and of weight.
func TestItemsAreReadAheadWithinBounds(t *testing.T) {
	for name, size := range map[string]int{"number": 1, "weight": consume.MaxItemBytes / 100} {
		synctest.Test(t, func(t *testing.T) {
			f := &tape{}
			body := string(make([]byte, size))
			for range consume.MaxItems + 100 {
				f.keys = append(f.keys, body)
			}
			l := sender(f, func([]string) (int, error) { return 0, errors.New("the receiver is away") })
			stop := begin(t, l)
			<-time.After(time.Minute)
			synctest.Wait()
			if ahead := len(l.Waiting("lane")); ahead != min(consume.MaxItems, (consume.MaxItemBytes+size-1)/size) {
				t.Errorf("%s: %d deliveries are read ahead", name, ahead)
			}
			stop()
		})
	}
}

// TestPace: a delivery is not taken in before its turn.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, done := &tape{keys: []string{"a", "b"}}, 0
		l := sender(f, func(waiting []string) (int, error) { done += len(waiting); return len(waiting), nil })
		l.Pace = func(ctx context.Context, _ string) {
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
			}
		}
		stop := begin(t, l)
		<-time.After(90 * time.Minute)
		if done != 1 || f.position() != 1 {
			t.Errorf("%d done, position %d", done, f.position())
		}
		stop()
		if f.position() != 1 {
			t.Errorf("position %d after a stop in mid-turn", f.position())
		}
	})
}
