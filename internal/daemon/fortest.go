package daemon

import (
	"context"
	"io"
	"os"
	"sync"
)

// TB is what RunForTest needs of a test.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Output() io.Writer
}

// Running is a service that runs inside a test.
type Running struct {
	// Address is the host:port of its probes and metrics.
	Address string

	cancel context.CancelFunc
	done   chan struct{}
	code   int
}

// Stop stops it as a signal would, waits for its end and returns its exit code.
func (r *Running) Stop() int {
	r.cancel()
	return r.Wait()
}

// Wait waits for its end and returns its exit code.
func (r *Running) Wait() int {
	<-r.done
	return r.code
}

// RunForTest runs a service inside a test exactly as Main does, on a free port
// and with logs in the test's output. args are its command line. It is stopped
// at the end of the test, which fails if the service has not ended well.
func RunForTest[C any](t TB, name string, def C, build func(ctx context.Context, d *Daemon, cfg C) error, args ...string) *Running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Running{cancel: cancel, done: make(chan struct{})}
	ready := make(chan struct{})
	release := sync.OnceFunc(func() { close(ready) })
	in := invocation{
		name: name, args: append([]string{"--metrics-address=127.0.0.1:0", "--log-format=text"}, args...),
		stdout: t.Output(), stderr: t.Output(), lookup: os.LookupEnv,
		bound: func(address string) { r.Address = address; release() },
	}
	go func() {
		defer close(r.done)
		defer release()
		r.code = start(ctx, in, def, build)
	}()
	<-ready
	asked := false
	t.Cleanup(func() {
		select {
		case <-r.done:
			asked = true // the test saw or caused the end
		default:
		}
		if code := r.Stop(); code != 0 && !asked {
			t.Errorf("%s ended with exit code %d", name, code)
		}
	})
	return r
}
