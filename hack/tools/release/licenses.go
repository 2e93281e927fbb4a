package main

import (
	"context"
	"debug/buildinfo"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nvidia/nvsentinel/hack/tools/licenses"
)

// writeLicenses copies the license files of a program's modules into a folder.
func writeLicenses(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags := flag.NewFlagSet("licenses", flag.ContinueOnError)
	flags.SetOutput(stderr)
	program := flags.String("program", "", "`File` of the program.")
	source := flags.String("source", ".", "`Folder` of the repository.")
	dir := flags.String("dir", "", "`Folder` that gets licenses/<module>/<file>.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *program == "" || *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("%w: licenses needs --program and --dir, and takes no other argument", errArguments)
	}
	built, err := buildinfo.ReadFile(*program)
	if err != nil {
		return fmt.Errorf("reading the modules of %s: %w", *program, err)
	}
	finder, err := licenses.New(ctx, *source)
	if err != nil {
		return err
	}
	files, err := finder.Files(built)
	if err != nil {
		return err
	}
	for name, from := range files {
		if err := copyFile(from, filepath.Join(*dir, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("copying the license %s: %w", name, err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
