package daemon

import (
	"flag"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Files is a configuration that names further files, whose content counts as its
// own: Validate reads them too.
type Files interface{ Files() []string }

// Reload starts a task that reads the configuration again, over fresh defaults
// and with the same flags, whenever the content of the file of --config, or of a
// file that it names (Files), has changed, and gives it to take. take keeps what
// may change while the service runs (the fields tagged `live:"true"`), all of it or
// with an error nothing; other keys that differ from those of started are told to
// need a restart. A configuration that cannot be read, is not valid or is not taken
// leaves the one in force: log, metric and readiness say so until it is mended.
// Without any file there is nothing to do.
func Reload[C any](d *Daemon, started C, def func() C, take func(C) error) {
	failed := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nvs_config_reload_failed", Help: "1 while the configuration file cannot be used and an older content is in force.",
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
			d.Log.Warn("the changed configuration is in force but for keys that need a restart", "files", files, "keys", restart)
		}
		return nil
	}, Told: func(err error) {
		failed.Set(0)
		switch {
		case err != nil:
			failed.Set(1)
			d.Log.Error("the changed configuration is not used; the one before it stays in force", "error", err)
		case len(restart) == 0:
			d.Log.Info("the changed configuration is in force", "files", files)
		}
	}}
	d.Ready("configuration", func() (bool, string) {
		if trouble := follower.Trouble(); trouble != "" {
			return false, "the configuration on disk is not used, the one before it is in force: " + trouble
		}
		return true, "as on disk"
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
