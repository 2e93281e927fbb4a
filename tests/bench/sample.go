package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

// quantile is the smallest value that a share q of all values do not exceed.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// memory reads a field of /proc/<pid>/status in bytes: VmRSS now, VmHWM at most.
func memory(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("reading a process's memory: no %s", field)
}

// watchMemory samples a service's resident memory until stop is called, which
// returns the peak of the first half of the samples and that of all.
func watchMemory(s *fleet.Service) (stop func() (half, all int64)) {
	var samples []int64
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if rss, err := memory(s.PID(), "VmRSS"); err == nil {
				samples = append(samples, rss)
			}
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	})
	return func() (int64, int64) {
		close(end)
		done.Wait()
		if len(samples) == 0 {
			return 0, 0
		}
		return slices.Max(samples[:(len(samples)+1)/2]), slices.Max(samples)
	}
}

// until polls cond until it holds or limit has passed.
func until(ctx context.Context, limit time.Duration, what string, cond func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := cond()
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for %s: %w", what, ctx.Err()), err)
		case <-tick.C:
		}
	}
}

// atOnce runs f for 0 to n-1, at most width at a time, and joins the errors.
func atOnce(n, width int, f func(i int) error) error {
	work := make(chan int)
	errs := make([]error, n)
	var workers sync.WaitGroup
	for range min(n, width) {
		workers.Go(func() {
			for i := range work {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	workers.Wait()
	return errors.Join(errs...)
}
