package daemon

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/config"
)

// reloadEvery is how often the configuration file is looked at. A file is
// looked at instead of watched because a mounted ConfigMap is a link that is
// exchanged.
const reloadEvery = 2 * time.Second

// Reload starts a task that reads the configuration again, over fresh defaults
// and with the same flags, whenever the content of the file of --config has
// changed, and gives it to take, which keeps what may change while the service
// runs. What cannot be read or is not valid is logged and shown by a metric,
// and the configuration in force stays. Without a file there is nothing to do.
func Reload[C any](d *Daemon, def func() C, take func(C)) {
	failed := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nvs_config_reload_failed", Help: "1 while the configuration file cannot be used and an older content is in force.",
	})
	d.Registry.MustRegister(failed)
	file, _, err := reread(d.in, def())
	if err == nil && file == "" {
		return
	}
	r := &reloader[C]{d: d, file: file, def: def, take: take, failed: failed}
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
	d      *Daemon
	file   string
	def    func() C
	take   func(C)
	failed prometheus.Gauge

	looked  bool
	content []byte
	trouble string
}

// look reads the file and, at first and whenever it has changed, takes it over.
func (r *reloader[C]) look() {
	content, err := os.ReadFile(r.file)
	if err == nil && r.looked && bytes.Equal(content, r.content) {
		return
	}
	first := !r.looked
	r.looked, r.content = true, content
	var cfg C
	if err == nil {
		_, cfg, err = reread(r.d.in, r.def())
	}
	if err != nil {
		r.failed.Set(1)
		if err.Error() != r.trouble {
			r.d.Log.Error("the changed configuration is not used", "error", err)
		}
		r.trouble = err.Error()
		return
	}
	r.failed.Set(0)
	r.trouble = ""
	if !first {
		r.d.Log.Info("configuration read again", "file", r.file)
	}
	r.take(cfg)
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
	return opts.File, cfg, bound.Load(opts.File, in.lookup)
}
