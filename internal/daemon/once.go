package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// Job is a program that does one thing and ends, handed to its run function.
type Job struct {
	// Name of the program and Version of the build.
	Name, Version string
	Log           *slog.Logger
	Clock         clock.WithTicker
}

// Once is the whole of the main function of a program that does one thing and ends: it
// reads flags and the configuration over the defaults def, runs, and exits. Unlike
// Main's, its end by a signal is no success: who started it, such as a Kubernetes Job,
// would take what was not done for done.
func Once[C any](name string, def C, run func(ctx context.Context, j *Job, cfg C) error) {
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, release)
	limitMemory()
	in := invocation{name: name, args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr, lookup: os.LookupEnv}
	os.Exit(once(ctx, in, def, run))
}

// once runs one invocation and returns its exit code.
func once[C any](ctx context.Context, in invocation, def C, run func(ctx context.Context, j *Job, cfg C) error) int {
	opts, cfg := defaultBasics(in.lookup), def
	code, done := configure(in, &opts, &opts, &cfg)
	if done {
		return code
	}
	log, err := newLogger(in.stderr, opts)
	if err != nil {
		fmt.Fprintf(in.stderr, "%s: %v\n", in.name, err)
		return exitUsage
	}
	log = log.With("service", in.name)
	j := &Job{Name: in.name, Version: Version(), Log: log, Clock: crashpoint.Clock(clock.RealClock{})}
	err = guard(ctx, func(ctx context.Context) error { return run(ctx, j, cfg) })
	if err != nil {
		log.Error("program failed", "error", err, "interrupted", ctx.Err() != nil && errors.Is(err, context.Canceled))
		return exitFailed
	}
	log.Info("program is done")
	return exitStopped
}
