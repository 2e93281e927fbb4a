// Package licenses finds the license files of the modules that a program links. They are part of
// each image and archive, as most licenses require.
package licenses

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
)

// named are the names of files that a license asks to pass on.
var named = regexp.MustCompile(`(?i)^(un)?(licen[cs]es?|copying|notice|patents)([.-].*)?$`)

// Finder knows where the sources of modules are.
type Finder struct {
	// Cache is the module cache, Go the root of the Go installation, Source that of the repository.
	Cache, Go, Source string
}

// New returns the finder of this machine, for a repository.
func New(ctx context.Context, source string) (Finder, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOROOT")
	cmd.Dir = source
	out, err := cmd.Output()
	if err != nil {
		return Finder{}, fmt.Errorf("asking go for its folders: %w", err)
	}
	cache, root, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return Finder{Cache: cache, Go: root, Source: source}, nil
}

// Files are the license files of a program: where each is, by the path "licenses/<module>/<file>".
// A module without one is an error. A module of the workspace has the license of the repository.
func (f Finder) Files(program *debug.BuildInfo) (map[string]string, error) {
	out := map[string]string{}
	if _, err := f.collect(out, program.Main.Path, f.Source); err != nil {
		return nil, err
	}
	found, err := f.collect(out, "std", f.Go)
	if err == nil && found == 0 {
		err = fmt.Errorf("%s has no license of the standard library: use a distribution of Go from go.dev", f.Go)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range program.Deps {
		if err := f.dependency(out, m); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (f Finder) dependency(out map[string]string, m *debug.Module) error {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Version == "" || m.Version == "(devel)" {
		return nil
	}
	folder, err := module.EscapePath(m.Path)
	if err != nil {
		return fmt.Errorf("finding the module %s: %w", m.Path, err)
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return fmt.Errorf("finding the module %s: %w", m.Path, err)
	}
	dir := filepath.Join(f.Cache, filepath.FromSlash(folder)+"@"+version)
	found, err := f.collect(out, m.Path, dir)
	if err == nil && found == 0 {
		err = fmt.Errorf("the module %s has no license file in %s: its license does not permit to pass it on, or has another name", m.Path, dir)
	}
	return err
}

// collect adds the license files of a folder, and returns how many there are.
func (f Finder) collect(out map[string]string, name, dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("reading the licenses of %s: %w", name, err)
	}
	found := 0
	for _, e := range entries {
		if e.Type().IsRegular() && named.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") {
			out[path.Join("licenses", name, e.Name())] = filepath.Join(dir, e.Name())
			found++
		}
	}
	return found, nil
}
