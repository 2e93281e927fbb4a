// Package command is the command line of nvsentinel: it parses, opens what can
// be opened for reading, and prints a timeline as text or JSON.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/cli/timeline"
)

// Exit codes, as --help and docs/reference/cli.md document them.
const (
	// ExitComplete: everything asked for was read.
	ExitComplete = 0
	// ExitFailed: nothing could be read, or the answer not written.
	ExitFailed = 1
	// ExitUsage: wrong usage.
	ExitUsage = 2
	// ExitPartial: an answer with a source missing; the answer names it.
	ExitPartial = 3
	// ExitAbsent: every source was read, and none knows the node.
	ExitAbsent = 4
)

// Program is one run of the command line.
type Program struct {
	// Name is how it was called: argv[0].
	Name    string
	Version string
	Out     io.Writer
	Err     io.Writer
	// Store is the address used without --store.
	Store string
	// Colour is true if Out is a terminal that shows colours.
	Colour bool
	// Terminal is true if Out is a terminal, which can be cleared.
	Terminal bool
	Clock    clock.WithTicker
}

// coded is an error with the exit code it ends in.
type coded struct {
	error
	code int
}

// Unwrap gives the error itself.
func (c coded) Unwrap() error { return c.error }

// Run carries out a command line and returns the exit code.
func (p Program) Run(ctx context.Context, args []string) int {
	code := ExitComplete
	root := p.root(&code)
	root.SetArgs(args)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return code
	}
	fmt.Fprintln(p.Err, display(p.Name)+":", err)
	if c, ours := errors.AsType[coded](err); ours {
		return c.code
	}
	// What is not ours is cobra's: an unknown command, a wrong flag.
	return ExitUsage
}

// display is the program's name; as a plugin it is called through kubectl.
func display(name string) string {
	base := filepath.Base(name)
	if verb, ok := strings.CutPrefix(base, "kubectl-"); ok {
		return "kubectl " + verb
	}
	return "nvsentinel"
}

const exitCodes = `
Exit codes:
  0  success: every source was read
  1  failure: no source could be read, or the output could not be written
  2  invalid usage
  3  incomplete: a source could not be read, and the output names it
  4  not found (why and trace only): every source was read, and none contains the subject
`

func (p Program) root(code *int) *cobra.Command {
	o := options{program: p}
	root := &cobra.Command{
		Use:   "nvsentinel",
		Short: "Show what NVSentinel does to nodes and why, clear faults, release nodes, and pause or resume all actions",
		Long: `Show what NVSentinel does to nodes and why, based on the stored health events and
the API server. Only clear, release, canary, pause, resume and uninstall change the cluster.
Install the program as kubectl-nvsentinel to use it as a plugin: kubectl nvsentinel why <node>.
` + exitCodes,
		SilenceErrors: true, SilenceUsage: true,
		Version:           p.Version,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: display(p.Name)},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	o.flags(root.PersistentFlags())
	root.AddCommand(whyCommand(&o, code), statusCommand(&o, code), clearCommand(&o, code), releaseCommand(&o, code), traceCommand(&o, code), canaryCommand(&o), pauseCommand(&o, code), resumeCommand(&o, code), uninstallCommand(&o, code), convertCommand())
	return root
}

// exactly is cobra.ExactArgs with an error that names the arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("usage: %s, arguments given: %d", c.UseLine(), len(args))
	}
}

func whyCommand(o *options, code *int) *cobra.Command {
	why := &cobra.Command{
		Use:     "why <node>",
		Short:   "Show the history of a node: log line, event, rule, evaluation, drain, maintenance object, result, recovery",
		Long:    "Show the history of a node, cause by cause, with the IDs of the records and objects involved.\n" + exitCodes,
		Example: "  nvsentinel why gpu-1\n  nvsentinel why gpu-1 --all -o json",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			show := o.why
			if o.following {
				show = o.follow
			}
			*code, err = show(c.Context(), args[0])
			return err
		},
	}
	why.Flags().BoolVarP(&o.following, "follow", "f", false, "Continue to print changes line by line until Ctrl-C. With -o json, prints one line per change.")
	why.Flags().BoolVar(&o.all, "all", false, "Show every quarantine session and every record, not only the newest.")
	return why
}

func statusCommand(o *options, code *int) *cobra.Command {
	status := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the fleet: nodes quarantined, draining, remediating, held or requiring manual intervention, and consumer lag",
		Long:  "Show the state of the fleet, what each affected node requires, and the lag of every consumer of the store.\n" + exitCodes,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			show := o.status
			if o.following {
				show = o.watch
			}
			*code, err = show(c.Context())
			return err
		},
	}
	status.Flags().BoolVarP(&o.following, "watch", "w", false, "Show the state again after every change until Ctrl-C. With -o json, prints one line per change.")
	return status
}

func (o *options) why(ctx context.Context, node string) (int, error) {
	sources, done := o.open(ctx)
	defer done()
	facts := sources.Node(ctx, node, o.program.Clock.Now())
	if err := nothing(facts.Store, facts.Cluster); err != nil {
		return 0, err
	}
	tl := timeline.Assemble(facts)
	if err := o.print(tl, tl.Write); err != nil {
		return 0, err
	}
	return o.answered(facts, tl), nil
}

// answered is the code of an answer about a node.
func (o *options) answered(facts timeline.Facts, tl timeline.Timeline) int {
	if facts.Absent() {
		return ExitAbsent
	}
	return partial(tl.Pause, tl.Sources)
}

func (o *options) status(ctx context.Context) (int, error) {
	sources, done := o.open(ctx)
	defer done()
	facts := sources.Fleet(ctx, o.program.Clock.Now())
	if err := nothing(facts.Store, facts.Cluster); err != nil {
		return 0, err
	}
	fleet := timeline.Survey(facts)
	if err := o.print(fleet, fleet.Write); err != nil {
		return 0, err
	}
	return partial(fleet.Pause, fleet.Sources), nil
}

// nothing is the error of having read nothing at all.
func nothing(sources ...timeline.Source) error {
	var problems []error
	for _, s := range sources {
		if s.Read {
			return nil
		}
		problems = append(problems, fmt.Errorf("reading %s: %s", s.Name, s.Problem))
	}
	return coded{errors.Join(problems...), ExitFailed}
}

func partial(b timeline.PauseState, sources []timeline.Source) int {
	if !b.Read {
		return ExitPartial
	}
	for _, s := range sources {
		if !s.Complete() {
			return ExitPartial
		}
	}
	return ExitComplete
}

// print writes an answer in the form asked for.
func (o *options) print(answer any, text func(io.Writer, timeline.Style) error) error {
	return o.write(answer, text, "  ")
}

func (o *options) write(answer any, text func(io.Writer, timeline.Style) error, indent string) error {
	var err error
	if o.output == "json" {
		enc := json.NewEncoder(o.program.Out)
		enc.SetIndent("", indent)
		enc.SetEscapeHTML(false)
		err = enc.Encode(answer)
	} else {
		err = text(o.program.Out, o.style())
	}
	if err != nil {
		return coded{fmt.Errorf("writing the output: %w", err), ExitFailed}
	}
	return nil
}

// style is how text looks here.
func (o *options) style() timeline.Style {
	s := timeline.Style{Zone: o.zone, All: o.all}
	if o.program.Colour {
		s.Paint = paint
	}
	return s
}

// paint colours with the eight colours that every terminal has.
func paint(m timeline.Mood, text string) string {
	codes := map[timeline.Mood]string{timeline.Good: "32", timeline.Bad: "1;31", timeline.Alert: "33"}
	code, ok := codes[m]
	if !ok {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// defaultWithin bounds the reading of one source.
const defaultWithin = 15 * time.Second

func traceCommand(o *options, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "trace <digest|object|record|run|node>",
		Short: "Trace a fault to its result through the steps of repair chains, with their inputs and outputs",
		Long: `Trace a fault to its result through repair chain runs. Search by the digest of an input or
output (or its first 8 digits), by an object (name, kind/name, namespace/name or UID), by the
ID of a record, by the name of a run, or by a node. In the output, < marks an input of a step
with its origin, > marks an output, and * marks the subject of the search.
` + exitCodes,
		Example: "  nvsentinel trace sha256:9f8e7d6c5b4a\n  nvsentinel trace Job/gpu-1-4e3cb183\n  nvsentinel trace gpu-1 -o json",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			*code, err = o.trace(c.Context(), args[0])
			return err
		},
	}
}

func (o *options) trace(ctx context.Context, query string) (int, error) {
	sources, done := o.open(ctx)
	defer done()
	runs, source := sources.Runs(ctx)
	if err := nothing(source); err != nil {
		return 0, err
	}
	t := timeline.Follow(query, runs, source)
	if err := o.print(t, t.Write); err != nil {
		return 0, err
	}
	if len(t.Runs) == 0 {
		return ExitAbsent, nil
	}
	return ExitComplete, nil
}
