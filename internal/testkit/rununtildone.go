package testkit

import "time"

// longestRun bounds one life of a process in RunUntilDone; a loop's longest rest after
// deaths is five minutes, and tests end long before it gets there.
const longestRun = 3 * time.Minute

// RunUntilDone starts a process, and starts it again whenever it has ended, as Kubernetes
// does, until done reports that the world is as it has to be. It returns how often it
// ended; more than most times, or a life that leads nowhere, fail the test.
func RunUntilDone(t TB, most int, start func() (over <-chan struct{}), done func() bool) (deaths int) {
	t.Helper()
	for {
		over, ended := start(), false
		Until(t, longestRun, func() bool {
			select {
			case <-over:
				ended = true
				return true
			default:
				return done()
			}
		})
		if !ended {
			return deaths
		}
		if deaths++; deaths > most {
			t.Fatalf("the process has ended %d times, and the world is not as it has to be", deaths)
			return deaths
		}
	}
}
