package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Files is a configuration that names further files, whose content counts as its
// own: Validate reads them too.
type Files interface{ Files() []string }

// Reload starts a task that reads the configuration again, over fresh defaults
// and with the same flags, whenever the content of the file of --config, or of a
// file that it names (Files), has changed, and gives it to take. take keeps what
// may change while the service runs (the fields tagged `live:"true"`), all of it or
// with an error nothing; other keys that differ from those of started are reported as
// needing a restart. A configuration that cannot be read, is not valid or is not taken
// leaves the present one active: log, metric and readiness report that until it is fixed. Without
// any file there is nothing to do.
func Reload[C any](d *Daemon, started C, def func() C, take func(C) error) {
	failed := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nvsentinel_config_reload_failed", Help: "1 while the configuration file is invalid and its previous content is active, otherwise 0.",
	})
	d.Registry.MustRegister(failed)
	file, cfg, err := reread(d.in, def())
	files := filesOf(file, cfg)
	if err == nil && len(files) == 0 {
		return
	}
	var restart []string
	follower := &FileFollower{Clock: d.Clock, Files: func() []string { return files }, Take: func() error {
		_, cfg, err := reread(d.in, def())
		if err == nil {
			err = take(cfg)
		}
		if err != nil {
			return err
		}
		files = filesOf(file, cfg)
		warnOf(d.Log, cfg)
		if restart = config.NeedsRestart(started, cfg); len(restart) > 0 {
			d.Log.Warn("configuration reloaded, except for keys that require a restart", "files", files, "keys", restart)
		}
		return nil
	}, OnReload: func(err error) {
		failed.Set(0)
		switch {
		case err != nil:
			failed.Set(1)
			d.Log.Error("changed configuration rejected, previous configuration stays active", "error", err)
		case len(restart) == 0:
			d.Log.Info("configuration reloaded", "files", files)
		}
	}}
	d.Ready("configuration", func() (bool, string) {
		if trouble := follower.Trouble(); trouble != "" {
			return false, "the configuration on disk is rejected, the previous configuration is active: " + trouble
		}
		return true, "up to date"
	})
	d.Go("configuration", follower.Run)
}

// filesOf are the files whose content counts.
func filesOf(file string, cfg any) []string {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if more, ok := cfg.(Files); ok {
		files = append(files, more.Files()...)
	}
	return files
}

// reread does what configure did at the start and returns the file's name.
func reread[C any](in invocation, cfg C) (string, C, error) {
	opts := defaultOptions(in.lookup)
	flags := flag.NewFlagSet(in.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	own, err := config.Bind(flags, &opts)
	if err != nil {
		return "", cfg, err
	}
	bound, err := config.Bind(flags, &cfg)
	if err != nil {
		return "", cfg, err
	}
	if err := flags.Parse(in.args); err != nil {
		return "", cfg, fmt.Errorf("reading the flags again: %w", err)
	}
	if err := own.Load("", in.lookup); err != nil {
		return "", cfg, err
	}
	return opts.Basics.File, cfg, bound.Load(opts.Basics.File, in.lookup)
}

// FilesEvery is how often the files are looked at. They are read and compared instead of
// watched: a mounted ConfigMap is a link that is exchanged, which no watch of the file
// sees.
const FilesEvery = 2 * time.Second

// FileFollower takes the content of files over whenever it has changed, and as long as it
// is not taken. What is not taken leaves the previous content active.
type FileFollower struct {
	// Files names those whose content counts; it is asked at every look. One that
	// cannot be read is another content.
	Files func() []string
	// Take reads the files and takes them over whole, or with an error not at all.
	// It may be called more often than they change.
	Take func() error
	// OnReload hears once what became of a changed content: nil is taken, else why not.
	OnReload func(error)
	Clock    clock.WithTicker

	contents map[string]string // contents by file; of the task alone

	mu      sync.Mutex
	trouble string
}

// Start takes the files over for the first time. Without it, the first check of Run does
// that, and reports only a failure.
func (f *FileFollower) Start() error {
	f.compare()
	return f.Take()
}

// Run looks at the files until ctx ends.
func (f *FileFollower) Run(ctx context.Context) error {
	retry.Every(ctx, f.Clock, FilesEvery, f.poll)
	return nil
}

// Trouble is why what is on disk is not active; empty if it is.
func (f *FileFollower) Trouble() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

func (f *FileFollower) poll() {
	changed, more := f.compare()
	before, now := f.Trouble(), ""
	if !changed && !more && before == "" {
		return
	}
	err := f.Take()
	if err != nil {
		now = err.Error()
	}
	f.mu.Lock()
	f.trouble = now
	f.mu.Unlock()
	if changed || now != before {
		f.OnReload(err)
	}
}

// compare reads the files: changed are contents of before, more are files that were
// not among them.
func (f *FileFollower) compare() (changed, more bool) {
	if f.contents == nil {
		f.contents = map[string]string{}
	}
	for _, file := range f.Files() {
		text, err := os.ReadFile(file)
		now := fmt.Sprintf("%v\x00%s", err, text)
		before, known := f.contents[file]
		changed, more = changed || known && before != now, more || !known
		f.contents[file] = now
	}
	return changed, more
}

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
// would take what was not done for done. purpose is the first sentence of the help.
func Once[C any](name, purpose string, def C, run func(ctx context.Context, j *Job, cfg C) error) {
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, release)
	limitMemory()
	in := invocation{name: name, purpose: purpose, args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr, lookup: os.LookupEnv}
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
