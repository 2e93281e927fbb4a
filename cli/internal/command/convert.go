package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nvidia/nvsentinel/cli/convert"
)

func convertCommand() *cobra.Command {
	var kind, program string
	c := &cobra.Command{
		Use:   "convert-config <file>",
		Short: "Print a configuration of the earlier NVSentinel in the present spelling",
		Long: `Print a configuration of the earlier NVSentinel in the present spelling, with a comment
for each change. The last comment lists what has no counterpart and what has to be
changed by hand. The file "-" is the standard input. Nothing is written and no cluster
is asked. A password is never printed.

--kind says what the file is: toml (the configuration file of the program --program),
values (of the chart), environment (NAME=value a line) or flags (--name=value a line).
` + exitCodes,
		Example: "  nvsentinel convert-config --program fault-quarantine config.toml > new.toml\n  nvsentinel convert-config values.yaml > new-values.yaml",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := content(c.InOrStdin(), args[0])
			if err != nil {
				return coded{err, ExitFailed}
			}
			if kind == "" {
				kind = kindOf(args[0])
			}
			result, err := convertText(kind, program, text)
			if err != nil {
				return coded{fmt.Errorf("converting %s: %w", args[0], err), ExitFailed}
			}
			_, err = io.WriteString(c.OutOrStdout(), result.String())
			return err
		},
	}
	c.Flags().StringVar(&kind, "kind", "", "what the file is: toml, values, environment or flags; by default its name says it: .toml, .yaml or .yml, else environment")
	c.Flags().StringVar(&program, "program", "", "name of the program that reads the file, such as node-drainer; required with toml and flags")
	return c
}

func content(stdin io.Reader, file string) (string, error) {
	if file == "-" {
		text, err := io.ReadAll(stdin)
		return string(text), err
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

func kindOf(file string) string {
	switch filepath.Ext(file) {
	case ".toml":
		return "toml"
	case ".yaml", ".yml":
		return "values"
	}
	return "environment"
}

func convertText(kind, program, text string) (convert.Result, error) {
	if program == "" && (kind == "toml" || kind == "flags") {
		return convert.Result{}, errors.New("--program is empty: name the program that it is for, such as fault-quarantine")
	}
	switch kind {
	case "toml":
		return convert.TOML(program, text)
	case "values":
		return convert.Values(text)
	case "environment":
		return convert.Variables(program, text), nil
	case "flags":
		return convert.Flags(program, text), nil
	}
	return convert.Result{}, fmt.Errorf("--kind %q is not toml, values, environment or flags", kind)
}
