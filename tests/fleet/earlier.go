package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/tests/programs"
)

// ErrNoHistory is a checkout that does not have an earlier commit.
var ErrNoHistory = errors.New("the checkout does not have the commit")

// BuildEarlier builds the services of an earlier commit of the repository, once per
// machine, and returns the folder that they are in.
func BuildEarlier(ctx context.Context, root, commit string, progress io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache: %w", err)
	}
	dir := filepath.Join(cache, "nvsentinel", earlierFolder+commit)
	source, bin := filepath.Join(dir, "source"), filepath.Join(dir, "bin")
	if _, err := os.Stat(source); err != nil {
		if err := extract(ctx, root, commit, source); err != nil {
			return "", err
		}
	}
	return bin, gobuild.Builder{Progress: progress}.Build(ctx, programs.Earlier(source, bin))
}

// earlierFolder begins the name of the folder of an earlier commit.
const earlierFolder = "earlier-"

// formerFlags are the names that flags have in the earlier commit.
var formerFlags = map[string]string{"--journal-file": "--books", "--wal-dir": "--spool-dir"}

// argsOf are the arguments of a program, with the flags of an earlier commit if it is one.
func argsOf(program string, args []string) []string {
	if !strings.Contains(program, string(filepath.Separator)+earlierFolder) {
		return args
	}
	out := slices.Clone(args)
	for i, arg := range out {
		out[i] = cmp.Or(formerFlags[arg], arg)
	}
	return out
}

// extract writes the files of a commit into a folder, which appears when it is whole.
func extract(ctx context.Context, root, commit, into string) error {
	git := func(args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	}
	if out, err := git("cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		return fmt.Errorf("%w %s: %s", ErrNoHistory, commit, strings.TrimSpace(string(out)))
	}
	if err := os.MkdirAll(filepath.Dir(into), 0o755); err != nil {
		return fmt.Errorf("making the folder of an earlier commit: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(into), ".extracting-")
	if err != nil {
		return fmt.Errorf("making the folder of an earlier commit: %w", err)
	}
	defer os.RemoveAll(temp)
	archive := filepath.Join(temp, "archive.tar")
	if out, err := git("archive", "--format=tar", "--output", archive, commit).CombinedOutput(); err != nil {
		return fmt.Errorf("reading commit %s: %w: %s", commit, err, out)
	}
	files := filepath.Join(temp, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		return fmt.Errorf("making the folder of an earlier commit: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", files).CombinedOutput(); err != nil {
		return fmt.Errorf("unpacking commit %s: %w: %s", commit, err, out)
	}
	if err := os.Rename(files, into); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("keeping commit %s: %w", commit, err)
	}
	return nil
}
