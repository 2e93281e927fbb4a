package localcluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// progressEvery is how often a build that takes long says that it goes on.
const progressEvery = 10 * time.Second

// Builder builds the control plane's programs into a cache, once per machine and version.
type Builder struct {
	// Root is the repository; empty looks for go.work in the working folder and above.
	Root string
	// Cache is the folder of the built programs; empty is nvsentinel/controlplane in the user's
	// cache folder ($XDG_CACHE_HOME, else ~/.cache).
	Cache string
	// Progress hears one line per program started and finished; nil says nothing.
	Progress io.Writer
}

// Build builds every program a cluster with controllers needs. When all exist it is instant and silent.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	return Builder{Progress: progress}.Build(ctx)
}

// Build builds every program a cluster with controllers needs.
func (b Builder) Build(ctx context.Context) (Binaries, error) {
	return b.binaries(ctx, allPrograms)
}

// BuildKubectl builds kubectl of the same version and returns its path.
func (b Builder) BuildKubectl(ctx context.Context) (string, error) {
	dir, err := b.ensure(ctx, []program{kubectlProgram})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, kubectlProgram.name), nil
}

func (b Builder) binaries(ctx context.Context, programs []program) (Binaries, error) {
	dir, err := b.ensure(ctx, programs)
	if err != nil {
		return Binaries{}, err
	}
	return Binaries{
		Etcd:              filepath.Join(dir, etcdProgram.name),
		APIServer:         filepath.Join(dir, apiServerProgram.name),
		ControllerManager: filepath.Join(dir, controllerProgram.name),
		Scheduler:         filepath.Join(dir, schedulerProgram.name),
		Kwok:              filepath.Join(dir, kwokProgram.name),
	}, nil
}

// ensure returns the folder that holds programs, after building those it lacks.
func (b Builder) ensure(ctx context.Context, programs []program) (string, error) {
	from, dir, err := b.locate()
	if err != nil {
		return "", err
	}
	if len(missing(dir, programs)) == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the build cache: %w", err)
	}
	say := newTeller(b.Progress)
	unlock, err := lockFile(ctx, filepath.Join(dir, ".lock"), say)
	if err != nil {
		return "", err
	}
	defer unlock()
	for _, p := range missing(dir, programs) {
		if err := build(ctx, from, p, dir, say); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// locate finds the pinned module and the cache folder that belongs to its versions.
func (b Builder) locate() (source, string, error) {
	root := b.Root
	if root == "" {
		here, err := os.Getwd()
		if err != nil {
			return source{}, "", fmt.Errorf("looking for the repository: %w", err)
		}
		if root, err = findRoot(here); err != nil {
			return source{}, "", err
		}
	}
	from, err := readSource(root)
	if err != nil {
		return source{}, "", err
	}
	cache := b.Cache
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return source{}, "", fmt.Errorf("finding the user's cache folder: %w", err)
		}
		cache = filepath.Join(user, "nvsentinel", "controlplane")
	}
	return from, filepath.Join(cache, from.key), nil
}

// missing returns the programs that dir does not hold.
func missing(dir string, programs []program) []program {
	var lacking []program
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(dir, p.name)); err != nil {
			lacking = append(lacking, p)
		}
	}
	return lacking
}

// build compiles p and puts it into dir under its name only when it is whole.
func build(ctx context.Context, from source, p program, dir string, say *teller) error {
	temp := filepath.Join(dir, p.name+".building")
	defer os.Remove(temp)

	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", linkerFlags(from), "-o", temp, p.pkg)
	cmd.Dir = from.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	cmd.Stdout, cmd.Stderr = &output, &output
	// A group of its own, so that a cancelled build takes its compilers along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	finished := say.task("building " + p.name)
	err := cmd.Run()
	finished(err)
	if ctx.Err() != nil {
		return fmt.Errorf("building %s: %w", p.name, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", p.name, err, tail(output.Bytes()))
	}
	if err := os.Rename(temp, filepath.Join(dir, p.name)); err != nil {
		return fmt.Errorf("keeping %s: %w", p.name, err)
	}
	return nil
}

// linkerFlags name the version, which Kubernetes otherwise takes from its own build scripts.
// Commit and date stay unset: we do not know them.
func linkerFlags(from source) string {
	flags := []string{"-s", "-w"}
	numbers := strings.SplitN(strings.TrimPrefix(from.kubernetes, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X", pkg+".gitVersion="+from.kubernetes)
		if len(numbers) == 3 {
			flags = append(flags, "-X", pkg+".gitMajor="+numbers[0], "-X", pkg+".gitMinor="+numbers[1])
		}
	}
	return strings.Join(flags, " ")
}

// lockFile takes the exclusive lock of path, waiting for another process that builds.
func lockFile(ctx context.Context, path string, say *teller) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	try := func() error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	if try() == nil {
		return func() { file.Close() }, nil
	}
	finished := say.task("waiting for another process that builds the control plane")
	ticker := clock.RealClock{}.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			file.Close()
			finished(ctx.Err())
			return nil, fmt.Errorf("waiting for the build lock: %w", context.Cause(ctx))
		case <-ticker.C():
			if try() == nil {
				finished(nil)
				return func() { file.Close() }, nil
			}
		}
	}
}
