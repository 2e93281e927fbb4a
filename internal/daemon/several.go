package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/crashloop"
)

// member is one configured controller of a process of several.
type member struct {
	in    invocation
	cfg   any
	build func(ctx context.Context, d *Daemon) error
	d     *Daemon
}

// otherFailed is why a controller stops that has not failed itself.
type otherFailed struct {
	name string
	err  error
}

func (o *otherFailed) Error() string {
	return fmt.Sprintf("controller %s failed in the same process", o.name)
}
func (o *otherFailed) Unwrap() error { return o.err } // for the time that it leaves

// errEnded is a controller of several that ends by itself: the process would run on
// without it.
var errEnded = errors.New("the controller has ended, stopping the process")

// startSeveral runs one invocation of several controllers and returns its exit code.
func startSeveral(ctx context.Context, in invocation, chosen []Controller) int {
	opts := defaultOptions(in.lookup)
	args, code, done := in.share(&opts, chosen)
	if done {
		return code
	}
	members, code := in.members(chosen, args)
	if code != exitStopped {
		return code
	}
	log, err := newLogger(in.stderr, opts.Basics)
	if err != nil {
		fmt.Fprintf(in.stderr, "%s: %v\n", in.name, err)
		return exitUsage
	}
	if opts.Basics.CheckConfig {
		for _, m := range members {
			in.warn(m)
		}
		fmt.Fprintln(in.stdout, "the configuration is valid")
		return exitStopped
	}
	registry := newRegistry()
	p := &process{members: members, readiness: Readiness{Service: in.name, Version: Version()}}
	p.create(log, registry)
	log = log.With("service", in.name)
	in.own(ctx, log, nil)
	return in.serving(ctx, pages{registry, p.ready, log}, opts.MetricsAddress, "", p.run)
}

// warn prints the warnings that a start would log for one controller.
func (in invocation) warn(m member) {
	for _, text := range warningsOf(m.cfg) {
		fmt.Fprintf(in.stderr, "%s: warning: %s: %s\n", in.name, m.in.name, text)
	}
}

// share reads the command line: the flags of the process, and for each controller its own
// without the prefix that names the controller.
func (in invocation) share(opts *options, chosen []Controller) (args map[string][]string, code int, done bool) {
	fail := func(err error) (map[string][]string, int, bool) {
		fmt.Fprintf(in.stderr, "%s: %v\n", in.name, err)
		return nil, exitUsage, true
	}
	flags := flag.NewFlagSet(in.name, flag.ContinueOnError)
	flags.SetOutput(in.stderr)
	own, err := config.Bind(flags, opts)
	if err != nil {
		return fail(err)
	}
	if args, err = declareAll(flags, chosen); err != nil {
		return fail(err)
	}
	flags.Usage = func() { in.help(flags) }
	if err := flags.Parse(in.args); errors.Is(err, flag.ErrHelp) {
		return nil, exitStopped, true
	} else if err != nil {
		fmt.Fprintf(in.stderr, "%s: with several controllers, prefix each flag with its controller, such as --%s.config\n",
			in.name, chosen[0].Name)
		return nil, exitUsage, true
	}
	if flags.NArg() > 0 {
		return fail(fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	if err := own.Load("", in.lookup); err != nil {
		return fail(err)
	}
	if opts.Basics.File != "" {
		return fail(fmt.Errorf("--config is the file of one controller: with several controllers, set a file for each, such as --%s.config",
			chosen[0].Name))
	}
	if opts.Basics.Version {
		fmt.Fprintln(in.stdout, in.name, Version())
	}
	return args, exitStopped, opts.Basics.Version
}

// declareAll declares the flags of each controller. What is given of them is in args once
// the command line is read.
func declareAll(flags *flag.FlagSet, chosen []Controller) (args map[string][]string, err error) {
	args = map[string][]string{}
	for _, c := range chosen {
		its, err := c.flags(invocation{name: c.Name})
		if err != nil {
			return nil, err
		}
		add := func(arg string) { args[c.Name] = append(args[c.Name], arg) }
		file := flag.Flag{Name: "config", Usage: "Configuration file of " + c.Name, Value: new(anyText)}
		declare(flags, c.Name, file, add)
		its.VisitAll(func(f *flag.Flag) { declare(flags, c.Name, *f, add) })
	}
	return args, nil
}

// anyText is the value of a flag that is checked later.
type anyText string

func (a *anyText) String() string     { return string(*a) }
func (a *anyText) Set(s string) error { *a = anyText(s); return nil }

// its is a controller's flag on the command line of several.
type its struct {
	flag.Value
	add func(text string)
}

// Set checks the text as the flag itself does, and keeps it for its controller.
func (i its) Set(s string) error {
	if err := i.Value.Set(s); err != nil {
		return err
	}
	i.add(s)
	return nil
}

// IsBoolFlag lets a bool be given without a value.
func (i its) IsBoolFlag() bool {
	b, ok := i.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// declare declares a controller's flag under its longer name.
func declare(flags *flag.FlagSet, controller string, f flag.Flag, add func(arg string)) {
	flags.Var(its{f.Value, func(text string) { add("--" + f.Name + "=" + text) }}, controller+"."+f.Name, f.Usage)
}

// members configures each controller; all that is wrong is reported before anything starts.
func (in invocation) members(chosen []Controller, args map[string][]string) ([]member, int) {
	var members []member
	worst := exitStopped
	for _, c := range chosen {
		child := invocation{name: c.Name, args: args[c.Name], stdout: io.Discard, stderr: in.stderr, lookup: in.lookup}
		m, code := c.beside(child)
		worst = max(worst, code)
		members = append(members, m)
	}
	return members, worst
}

// process is several controllers that live and die together.
type process struct {
	members   []member
	readiness Readiness // what does not change of it
}

// create makes each controller's daemon. What it measures has the label controller: several
// measure the same, such as their lease.
func (p *process) create(log *slog.Logger, registry prometheus.Registerer) {
	shared := crashloop.NewProcess()
	for i := range p.members {
		m := &p.members[i]
		its := log.With("service", m.in.name)
		warnOf(its, m.cfg)
		m.d = newDaemon(m.in, its, prometheus.WrapRegistererWith(prometheus.Labels{"controller": m.in.name}, registry))
		m.d.Crashes = shared
	}
}

// run runs all until a signal, or until one of them ends: none is left behind dead.
func (p *process) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(p.members))
	for i := range p.members {
		m := &p.members[i]
		m.d.failed = func(err error) { cancel(&otherFailed{m.in.name, err}) }
	}
	var running sync.WaitGroup
	for i := range p.members {
		m := &p.members[i]
		running.Go(func() {
			err := m.d.run(ctx, func(ctx context.Context) error { return m.build(ctx, m.d) })
			if err == nil && ctx.Err() == nil {
				err = errEnded
				m.d.failed(err)
			}
			if err != nil {
				errs[i] = fmt.Errorf("controller %s: %w", m.in.name, err)
				m.d.Log.Error("controller failed", "error", err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// ready joins what the controllers report, each under its name.
func (p *process) ready() Readiness {
	all := p.readiness
	all.Ready, all.Tasks, all.Checks = true, []TaskState{}, []CheckState{}
	for _, m := range p.members {
		r := m.d.readiness()
		all.Ready = all.Ready && r.Ready
		if r.Detail != "" {
			all.Checks = append(all.Checks, CheckState{Name: m.in.name, OK: r.Ready, Detail: r.Detail})
		}
		for _, t := range r.Tasks {
			t.Name = m.in.name + ": " + t.Name
			all.Tasks = append(all.Tasks, t)
		}
		for _, c := range r.Checks {
			c.Name = m.in.name + ": " + c.Name
			all.Checks = append(all.Checks, c)
		}
	}
	return all
}
