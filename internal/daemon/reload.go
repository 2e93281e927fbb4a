package daemon

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/config"
)

// reloadEvery is how often the configuration file is looked at. A file is
// looked at instead of watched because a mounted ConfigMap is a link that is
// exchanged.
const reloadEvery = 2 * time.Second

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
	r := &reloader[C]{d: d, file: file, started: started, def: def, take: take, failed: failed}
	r.follow(cfg)
	if err == nil && len(r.files) == 0 {
		return
	}
	d.Ready("configuration", r.ready)
	d.Go("configuration", func(ctx context.Context) error {
		ticker := d.Clock.NewTicker(reloadEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
				r.look()
			}
		}
	})
}

// reloader is the state of a Reload.
type reloader[C any] struct {
	d       *Daemon
	file    string // of --config
	started C
	def     func() C
	take    func(C) error
	failed  prometheus.Gauge

	files   []string
	looked  bool
	content string

	mu      sync.Mutex
	trouble string
}

// follow keeps the files whose content counts.
func (r *reloader[C]) follow(cfg C) {
	r.files = nil
	if r.file != "" {
		r.files = append(r.files, r.file)
	}
	if more, ok := any(cfg).(Files); ok {
		r.files = append(r.files, more.Files()...)
	}
}

// ready says whether the files are what is in force.
func (r *reloader[C]) ready() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble != "" {
		return false, "the configuration on disk is not used, the one before it is in force: " + r.trouble
	}
	return true, "as on disk"
}

// read is the content of all files; one that cannot be read is another content.
func (r *reloader[C]) read() string {
	var all strings.Builder
	for _, file := range r.files {
		text, err := os.ReadFile(file)
		fmt.Fprintf(&all, "%s\x00%v\x00%s\x00", file, err, text)
	}
	return all.String()
}

// look reads the files and, at first, whenever they have changed, and as long as
// they are not used, takes them over.
func (r *reloader[C]) look() {
	content := r.read()
	if r.looked && r.trouble == "" && content == r.content {
		return
	}
	first := !r.looked
	r.looked, r.content = true, content
	_, cfg, err := reread(r.d.in, r.def())
	if err == nil {
		err = r.take(cfg)
	}
	if err != nil {
		r.refuse(err.Error())
		return
	}
	r.follow(cfg)
	r.refuse("")
	switch restart := config.NeedsRestart(r.started, cfg); {
	case len(restart) > 0:
		r.d.Log.Warn("the changed configuration is in force but for keys that need a restart", "files", r.files, "keys", restart)
	case !first:
		r.d.Log.Info("the changed configuration is in force", "files", r.files)
	}
}

// refuse notes why the files are not used; empty is nothing.
func (r *reloader[C]) refuse(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed.Set(0)
	if why != "" {
		r.failed.Set(1)
		if why != r.trouble {
			r.d.Log.Error("the changed configuration is not used; the one before it stays in force", "error", why)
		}
	}
	r.trouble = why
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
