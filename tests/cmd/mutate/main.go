// Command mutate changes the pure packages in one place at a time, and lists the changes
// that no test of the package notices: make mutate [PKG=fault-quarantine/decision,...].
//
// Exit status: 0 every package reaches the share, 1 one does not, 2 bad flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/nvidia/nvsentinel/tests/mutation"
	"github.com/nvidia/nvsentinel/tests/overlay"
)

// explanations of changes that may go unnoticed, below the root.
const explanations = "tests/mutation/explained.txt"

func main() {
	packages := flag.String("packages", "", "Package directories, separated by commas. Empty selects all pure packages.")
	sample := flag.Int("sample", 45, "Number of mutations per package. 0 tries all.")
	share := flag.Int("share", 95, "Minimum percentage of mutations that tests detect or that are explained.")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if flag.NArg() > 0 || *sample < 0 || *share < 0 || *share > 100 {
		fmt.Fprintln(os.Stderr, "mutate accepts only --packages, --sample (0 or more) and --share (0 to 100)")
		os.Exit(2)
	}
	if err := run(ctx, *packages, *sample, *share); err != nil {
		fmt.Fprintf(os.Stderr, "\n%v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, packages string, sample, share int) error {
	root, err := overlay.Root(ctx)
	if err != nil {
		return err
	}
	o := mutation.Options{Root: root, Sample: sample, Lanes: runtime.NumCPU()}
	if o.Explained, err = mutation.Explained(filepath.Join(root, explanations)); err != nil {
		return err
	}
	folders := strings.Split(packages, ",")
	if packages == "" {
		if folders, err = mutation.Pure(root); err != nil {
			return err
		}
	}
	var problems []error
	fmt.Println("| package | tried | detected | explained | share |\n|---|---|---|---|---|")
	for _, folder := range folders {
		out, err := mutation.Run(ctx, filepath.Clean(folder), o)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %d | %d | %d | %d %% |\n", out.Package, out.Tried, out.Noticed, out.Explained, out.Share())
		for _, c := range out.Survivors {
			fmt.Fprintf(os.Stderr, "%s:%d\n%s\n", filepath.Join(out.Package, c.File), c.Line, mutation.Key(out.Package, c))
		}
		if out.Share() < share {
			problems = append(problems, fmt.Errorf("%s: %d %% of its changes are detected or explained, want %d %%", out.Package, out.Share(), share))
		}
	}
	return errors.Join(problems...)
}
