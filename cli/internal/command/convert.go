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
		Short: "Convert a configuration of the earlier NVSentinel to the current format",
		Long: `Convert a configuration of the earlier NVSentinel to the current format and print it, with a
comment for each change. The last comment lists settings without a counterpart and settings
that need a manual change. The file "-" is standard input. The command writes no file, contacts
no cluster and never prints a password.

--kind sets the type of the file: toml (configuration file of the program --program), values
(of the chart), environment (NAME=value per line) or flags (--name=value per line).
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
	c.Flags().StringVar(&kind, "kind", "", "Type of the file: toml, values, environment or flags. By default, .toml is toml, .yaml and .yml are values, and any other name is environment.")
	c.Flags().StringVar(&program, "program", "", "Name of the program that reads the file, for example node-drainer. Required for toml and flags.")
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
		return convert.Result{}, errors.New("--program is empty: name the program that reads the file, such as fault-quarantine")
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
