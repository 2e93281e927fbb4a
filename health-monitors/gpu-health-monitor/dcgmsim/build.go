package dcgmsim

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata/*.c
var sources embed.FS

// ErrNoCompiler means that there is no gcc, or that it lacks the C library's headers.
var ErrNoCompiler = errors.New("no working C compiler: building the simulated DCGM needs gcc and libc6-dev")

// Build builds the library into dir, for LD_LIBRARY_PATH, against the headers of the
// go-dcgm that the workspace uses: it runs within that.
func Build(ctx context.Context, dir string) error {
	gcc, err := compiler(ctx)
	if err != nil {
		return err
	}
	headers, err := headersOf(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"sim.c", "policy.c"} {
		source, err := sources.ReadFile("testdata/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), source, 0o600)
		}
		if err != nil {
			return fmt.Errorf("writing the simulated DCGM: %w", err)
		}
	}
	out, err := exec.CommandContext(ctx, gcc, "-shared", "-fPIC", "-O1", "-Wall", "-Wno-format-truncation", "-pthread",
		"-I", headers, "-Wl,-soname,libdcgm.so.4",
		"-o", filepath.Join(dir, "libdcgm.so.4"), filepath.Join(dir, "sim.c")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the simulated DCGM: %w\n%s", err, out)
	}
	return nil
}

// compiler returns the path of a gcc that can compile a program. ErrNoCompiler is what
// gcc itself answers: one that cannot be started, or is killed, may be a working one.
func compiler(ctx context.Context) (string, error) {
	gcc, err := exec.LookPath("gcc")
	if errors.Is(err, exec.ErrNotFound) {
		return "", ErrNoCompiler
	}
	if err != nil {
		return "", fmt.Errorf("finding gcc: %w", err)
	}
	trial := exec.CommandContext(ctx, gcc, "-fsyntax-only", "-x", "c", "-")
	trial.Stdin = strings.NewReader("#include <pthread.h>\n")
	out, err := trial.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return "", fmt.Errorf("%w: %w\n%s", ErrNoCompiler, err, out)
	}
	if err != nil {
		return "", fmt.Errorf("testing gcc: %w", err)
	}
	return gcc, nil
}

// headersOf returns the folder of go-dcgm's headers. It lists the package, because
// listing the module prints no folder while the module cache does not hold it.
func headersOf(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-find", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm/pkg/dcgm")
	list.Env = append(os.Environ(), "CGO_ENABLED=1") // without cgo the package has no files
	var out, problems strings.Builder
	list.Stdout, list.Stderr = &out, &problems
	if err := list.Run(); err != nil {
		return "", fmt.Errorf("finding the headers of go-dcgm: %w\n%s", err, problems.String())
	}
	return strings.TrimSpace(out.String()), nil
}
