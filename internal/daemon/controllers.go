package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Controller is a service that a program runs, alone or beside others in one process.
type Controller struct {
	// Name of the service, of its lease and of its flags.
	Name string
	// Commands do something else and return an exit code: the name of one is the first
	// argument of a controller that runs alone. May be nil.
	Commands map[string]func(args []string) int

	purpose string // the first sentence of its help
	alone   func(ctx context.Context, in invocation) int
	flags   func(in invocation) (*flag.FlagSet, error)
	beside  func(in invocation) (member, int)
}

// NewController is a service as Main has it: the first sentence of its help, its
// configuration over the defaults def, and what build wires.
func NewController[C any](name, purpose string, def C, build func(ctx context.Context, d *Daemon, cfg C) error) Controller {
	return Controller{
		Name:    name,
		purpose: purpose,
		alone:   func(ctx context.Context, in invocation) int { return start(ctx, in, def, build) },
		flags: func(in invocation) (*flag.FlagSet, error) {
			flags, cfg := flag.NewFlagSet(in.name, flag.ContinueOnError), def
			_, err := config.Bind(flags, &cfg)
			return flags, err
		},
		beside: func(in invocation) (member, int) {
			opts, cfg := defaultOptions(in.lookup), def
			code, done := configure(in, &opts, &opts.Basics, &cfg)
			if done {
				return member{}, code
			}
			m := member{in: in, cfg: cfg}
			m.build = func(ctx context.Context, d *Daemon) error { return build(ctx, d, cfg) }
			return m, exitStopped
		},
	}
}

// Controllers is the whole of the main function of a program that runs some of a table of
// controllers: those that --controllers names, or the one whose name the program was
// started by, through a link. One alone has all its flags, as if it were a program of its
// own. Of several each flag begins with the name of its controller and a dot.
func Controllers(program string, table ...Controller) {
	chosen, args, err := choose(os.Args, table)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(os.Stderr, usage(program, table))
		os.Exit(exitStopped)
	case errors.Is(err, errVersion):
		fmt.Println(program, Version())
		os.Exit(exitStopped)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(exitUsage)
	case len(chosen) > 1:
		runProcess(program, purposeOf(program)+".", args, func(ctx context.Context, in invocation) int { return startSeveral(ctx, in, chosen) })
	}
	one := chosen[0]
	if len(args) > 0 && one.Commands[args[0]] != nil {
		os.Exit(one.Commands[args[0]](args[1:]))
	}
	runProcess(one.Name, one.purpose, args, one.alone)
}

// errVersion asks for the version, which is that of all controllers.
var errVersion = errors.New("version requested")

// flagControllers is the flag that chooses.
const flagControllers = "controllers"

// choose reads which controllers of the table a command line asks for, and returns the
// other arguments. argv has the program's own name first.
func choose(argv []string, table []Controller) ([]Controller, []string, error) {
	list, args, given := take(argv[1:])
	link := slices.IndexFunc(table, func(c Controller) bool { return c.Name == filepath.Base(argv[0]) })
	switch {
	case given == 0 && link >= 0:
		return table[link : link+1], args, nil
	case given > 1:
		return nil, nil, errors.New("--controllers is given more than once: name all controllers in one list")
	case given == 0 && wantsHelp(args):
		return nil, nil, flag.ErrHelp
	case given == 0 && slices.ContainsFunc(args, func(a string) bool { return a == "-version" || a == "--version" }):
		return nil, nil, errVersion
	case given == 0:
		return nil, nil, fmt.Errorf("--controllers is missing: name one or more of %s, separated by commas", names(table))
	}
	chosen, err := parseControllers(list, table)
	return chosen, args, err
}

func wantsHelp(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		return slices.Contains([]string{"-h", "--h", "-help", "--help"}, a)
	})
}

// take takes --controllers out of the arguments.
func take(all []string) (list string, rest []string, given int) {
	for i := 0; i < len(all); i++ {
		name, value, joined := strings.Cut(all[i], "=")
		if name != "--"+flagControllers && name != "-"+flagControllers {
			rest = append(rest, all[i])
			continue
		}
		given++
		if !joined && i+1 < len(all) {
			i++
			value = all[i]
		}
		list = value
	}
	return list, rest, given
}

// parseControllers reads a list of names.
func parseControllers(list string, table []Controller) ([]Controller, error) {
	var chosen []Controller
	var problems []error
	for name := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(table, func(c Controller) bool { return c.Name == name })
		switch {
		case name == "" && list == "":
			problems = append(problems, fmt.Errorf("--controllers is empty: name one or more of %s", names(table)))
		case name == "":
			problems = append(problems, fmt.Errorf("--controllers=%s has an empty name between its commas", list))
		case at < 0:
			problems = append(problems, fmt.Errorf("--controllers: unknown controller %q, known controllers are %s", name, names(table)))
		case slices.ContainsFunc(chosen, func(c Controller) bool { return c.Name == name }):
			problems = append(problems, fmt.Errorf("--controllers names %s twice", name))
		default:
			chosen = append(chosen, table[at])
		}
	}
	return chosen, errors.Join(problems...)
}

func names(table []Controller) string {
	var out []string
	for _, c := range table {
		out = append(out, c.Name)
	}
	return strings.Join(out, ", ")
}

// purposeOf returns what the program is.
func purposeOf(program string) string {
	return program + " runs one or more controllers of the control plane in one process"
}

// usage is the help of the program without a controller.
func usage(program string, table []Controller) string {
	return fmt.Sprintf(`%[5]s: %[2]s.

  %[1]s --controllers=%[3]s [flags of %[3]s]
  %[1]s --controllers=%[3]s --help
  %[1]s --controllers=%[3]s,%[4]s --%[3]s.config=<file> --%[4]s.config=<file>

With several controllers, prefix each flag with the name of its controller and a dot. Flags of
the process have no prefix: --metrics-address, --log-level, --log-format, --check-config,
--version.
`, program, names(table), table[0].Name, table[min(1, len(table)-1)].Name, purposeOf(program))
}
