package config

import (
	"flag"
	"fmt"
)

// PrintUsage prints every flag with its usage and default to the flag set's
// output.
func PrintUsage(flags *flag.FlagSet) {
	out := flags.Output()
	fmt.Fprintf(out, "Usage of %s:\n", flags.Name())
	flags.VisitAll(func(f *flag.Flag) {
		fmt.Fprintf(out, "  --%s\n    \t%s", f.Name, f.Usage)
		if f.DefValue != "" {
			fmt.Fprintf(out, " (default %s)", f.DefValue)
		}
		fmt.Fprintln(out)
	})
}
