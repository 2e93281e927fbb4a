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
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// Exit codes of every service.
const (
	exitStopped = 0 // by a signal, or all tasks done
	exitFailed  = 1
	exitUsage   = 2 // bad flags or configuration
)

// version is set by the linker: -X .../internal/daemon.version=v1.2.3
var version string

// options are the flags that every service has.
type options struct {
	Basics         basics
	MetricsAddress string `flag:"metrics-address" usage:"Address of /metrics, /healthz and /readyz, as host:port. Port 0 selects a free port. Empty or off disables the server."`
}

// basics are the flags that every program has that speaks of itself in logs.
type basics struct {
	File        string `flag:"config" usage:"Configuration file in TOML, or in YAML with the same keys if its name ends in .yaml. An unknown key is an error."`
	CheckConfig bool   `flag:"check-config" usage:"If true, reads and validates the configuration, then exits."`
	Version     bool   `flag:"version" usage:"If true, prints the version, then exits."`
	LogLevel    string `flag:"log-level" usage:"Log level: debug, info, warn or error. The environment variable LOG_LEVEL sets its default."`
	LogFormat   string `flag:"log-format" usage:"Log format: json or text."`
}

func defaultOptions(lookup func(name string) (string, bool)) options {
	return options{Basics: defaultBasics(lookup), MetricsAddress: defaultAddress}
}

// defaultBasics take the log level from the environment, where LOG_LEVEL is set.
func defaultBasics(lookup func(name string) (string, bool)) basics {
	b := basics{LogLevel: "info", LogFormat: "json"}
	if lookup == nil {
		return b
	}
	if level, ok := lookup("LOG_LEVEL"); ok && level != "" {
		b.LogLevel = level
	}
	return b
}

// defaultAddress is where metrics and probes are served.
const defaultAddress = ":2112"

// Listening is a configuration with addresses of its own for metrics and probes,
// which hold unless --metrics-address is given.
type Listening interface {
	Addresses() (metrics, probes string)
}

// addressesOf are where metrics and probes are served, together on each.
func addressesOf(o options, cfg any) (first, second string) {
	l, ok := cfg.(Listening)
	if !ok || o.MetricsAddress != defaultAddress {
		return o.MetricsAddress, ""
	}
	first, second = l.Addresses()
	if first == second {
		second = ""
	}
	return first, second
}

// invocation is one command line with the streams it speaks to.
type invocation struct {
	name           string
	purpose        string // the first sentence of the help
	args           []string
	stdout, stderr io.Writer
	lookup         func(name string) (string, bool)
	// bound receives the address of the probes' server; nil is fine.
	bound func(address string)
	// logging receives the logger, for libraries that have a global one; nil is
	// fine.
	logging func(*slog.Logger)
	// grow receives how far the heap of this process may grow; nil is fine.
	grow func(ctx context.Context, percent int)
}

// Main is the whole of a service's main function: it reads flags and the
// configuration over the defaults def, runs what build wires until a signal, a
// failed task or the end of all tasks, and exits. purpose is the first sentence of
// the help: it states what the program is.
func Main[C any](name, purpose string, def C, build func(ctx context.Context, d *Daemon, cfg C) error) {
	runProcess(name, purpose, os.Args[1:], func(ctx context.Context, in invocation) int { return start(ctx, in, def, build) })
}

// runProcess runs a service as this process, and exits.
func runProcess(name, purpose string, args []string, start func(ctx context.Context, in invocation) int) {
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// After the first signal the default handling is back: a second one kills.
	context.AfterFunc(ctx, release)
	limitMemory()
	in := invocation{name: name, purpose: purpose, args: args, stdout: os.Stdout, stderr: os.Stderr, lookup: os.LookupEnv}
	in.logging = klog.SetSlogLogger // client-go logs there
	in.grow = growHeap
	os.Exit(start(ctx, in))
}

// start runs one invocation and returns its exit code.
func start[C any](ctx context.Context, in invocation, def C, build func(ctx context.Context, d *Daemon, cfg C) error) int {
	opts, cfg := defaultOptions(in.lookup), def
	code, done := configure(in, &opts, &opts.Basics, &cfg)
	if done {
		return code
	}
	log, err := newLogger(in.stderr, opts.Basics)
	if err != nil {
		fmt.Fprintf(in.stderr, "%s: %v\n", in.name, err)
		return exitUsage
	}
	log = log.With("service", in.name)
	in.own(ctx, log, cfg)
	warnOf(log, cfg)
	registry := newRegistry()
	d := newDaemon(in, log, registry)
	first, second := addressesOf(opts, cfg)
	served := pages{registry, d.readiness, log}
	return in.serving(ctx, served, first, second, func(ctx context.Context) error {
		return d.run(ctx, func(ctx context.Context) error { return build(ctx, d, cfg) })
	})
}

// serving runs a process with its pages at two addresses, and returns its exit code.
func (in invocation) serving(ctx context.Context, served pages, first, second string, run func(context.Context) error) int {
	server, err := served.serve(ctx, first)
	if err != nil {
		served.log.Error("service failed", "error", err)
		return exitFailed
	}
	probes, err := served.serve(ctx, second)
	if err != nil {
		served.log.Error("service failed", "error", errors.Join(err, server.close()))
		return exitFailed
	}
	if in.bound != nil {
		in.bound(server.address)
	}
	if err := errors.Join(run(ctx), server.close(), probes.close()); err != nil {
		served.log.Error("service failed", "error", err)
		return exitFailed
	}
	served.log.Info("service stopped")
	return exitStopped
}

// own sets what there is one of in a process.
func (in invocation) own(ctx context.Context, log *slog.Logger, cfg any) {
	if in.logging != nil {
		in.logging(log)
	}
	if g, ok := cfg.(Growing); ok && in.grow != nil {
		in.grow(ctx, g.Growth())
	}
}

// Questionable is a configuration that may be valid and not wise.
type Questionable interface {
	// Warnings returns what a user should change, with the path of the key.
	Warnings() []string
}

func warningsOf(cfg any) []string {
	if q, ok := cfg.(Questionable); ok {
		return q.Warnings()
	}
	return nil
}

func warnOf(log *slog.Logger, cfg any) {
	for _, text := range warningsOf(cfg) {
		log.Warn("questionable configuration found", "warning", text)
	}
}

// configure reads the command line and the configuration; done means that the
// process ends with the code. all are the program's own flags, of which basics are
// a part.
func configure[C any](in invocation, all any, opts *basics, cfg *C) (code int, done bool) {
	fail := func(err error) (int, bool) {
		fmt.Fprintf(in.stderr, "%s: %v\n", in.name, err)
		return exitUsage, true
	}
	flags := flag.NewFlagSet(in.name, flag.ContinueOnError)
	flags.SetOutput(in.stderr)
	own, err := config.Bind(flags, all)
	if err != nil {
		return fail(err)
	}
	bound, err := config.Bind(flags, cfg)
	if err != nil {
		return fail(err)
	}
	flags.Usage = func() { in.help(flags) }
	if err := flags.Parse(in.args); errors.Is(err, flag.ErrHelp) {
		return exitStopped, true
	} else if err != nil {
		hint(in, err)
		return exitUsage, true
	}
	if flags.NArg() > 0 {
		return fail(fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	if err := own.Load("", in.lookup); err != nil {
		return fail(err)
	}
	if opts.Version {
		fmt.Fprintln(in.stdout, in.name, Version())
		return exitStopped, true
	}
	if err := bound.Load(opts.File, in.lookup); err != nil {
		return fail(err)
	}
	if opts.CheckConfig {
		in.check(*cfg)
	}
	return exitStopped, opts.CheckConfig
}

// help prints what the program is, and its flags.
func (in invocation) help(flags *flag.FlagSet) {
	if in.purpose != "" {
		fmt.Fprintf(in.stderr, "%s\n\n", in.purpose)
	}
	config.PrintUsage(flags)
}

// check prints the warnings that a start would log for a valid configuration.
func (in invocation) check(cfg any) {
	for _, text := range warningsOf(cfg) {
		fmt.Fprintf(in.stderr, "%s: warning: %s\n", in.name, text)
	}
	fmt.Fprintln(in.stdout, "the configuration is valid")
}

// hint prints below the usage how to convert a flag of the earlier NVSentinel.
func hint(in invocation, err error) {
	if given, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		fmt.Fprintf(in.stderr, "%s: unknown flag --%s. If it is a flag of the earlier NVSentinel, convert it with nvsentinel convert-config --kind flags --program %s FILE, with one flag per line\n",
			in.name, strings.TrimLeft(given, "-"), in.name)
	}
}

// Version returns the version of the build: the one set by the linker, else the module's
// version or revision, else "unknown".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	if info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// newRegistry has what there is one of in a process.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nvsentinel_build_info", Help: "Always 1. The label version is the version of the build.",
		ConstLabels: prometheus.Labels{"version": Version()},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func newDaemon(in invocation, log *slog.Logger, registry prometheus.Registerer) *Daemon {
	return &Daemon{
		Name: in.name, Version: Version(), Log: log, Clock: crashpoint.Clock(clock.RealClock{}), Registry: registry,
		in: in, ended: make(chan struct{}),
	}
}

// newLogger writes structured lines to w.
func newLogger(w io.Writer, o basics) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		return nil, fmt.Errorf("flag --log-level: %q is not debug, info, warn or error", o.LogLevel)
	}
	how := &slog.HandlerOptions{Level: level}
	switch o.LogFormat {
	case "json":
		return slog.New(slog.NewJSONHandler(w, how)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, how)), nil
	default:
		return nil, fmt.Errorf("flag --log-format: %q is not json or text", o.LogFormat)
	}
}

func stack() []byte { return debug.Stack() }
