package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// imagesFile lists the images and the program in each.
const imagesFile = "hack/tools/images/images.txt"

// tree is what is measured of a checked-out tree.
type tree struct {
	sources []source
	modules []module
	config  configuration
	metrics []string // names, sorted
	images  []image
}

// module is one go.mod, or the sum of several. local are the replaces by a folder.
type module struct{ modLines, sumLines, replaces, local int }

// image is one image and the folder of its program.
type image struct{ name, program string }

// readTree measures the files that git knows below a root.
func readTree(ctx context.Context, root string) (tree, error) {
	files, err := tracked(ctx, root)
	if err != nil {
		return tree{}, err
	}
	t := tree{}
	pages := map[string]string{}
	for _, name := range files {
		switch {
		case path.Ext(name) == ".go":
			s, err := readSource(root, name)
			if err != nil {
				return tree{}, err
			}
			t.sources = append(t.sources, s)
		case path.Base(name) == "go.mod":
			m, err := readModule(ctx, root, name)
			if err != nil {
				return tree{}, err
			}
			t.modules = append(t.modules, m)
		case isPage(name) || name == imagesFile:
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil {
				return tree{}, fmt.Errorf("reading a page: %w", err)
			}
			pages[name] = string(text)
		}
	}
	t.config, t.metrics, t.images = configurationOf(pages), metricsOf(pages[metricsPage]), imagesOf(pages[imagesFile])
	return t, nil
}

// tracked are the files that git knows and that are there, below the root.
func tracked(ctx context.Context, root string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files of %s by git: %w", root, problem(err))
	}
	var files []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		info, err := os.Lstat(filepath.Join(root, filepath.FromSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("listing the files of %s: %w", root, err)
		case info.Mode().IsRegular():
			files = append(files, name)
		}
	}
	return files, nil
}

// problem is the error with the output of the failed program.
func problem(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}

// readModule measures a go.mod and the go.sum beside it; the go command reads the former.
func readModule(ctx context.Context, root, name string) (module, error) {
	file := filepath.Join(root, filepath.FromSlash(name))
	out, err := exec.CommandContext(ctx, "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		return module{}, fmt.Errorf("reading %s by go mod edit: %w", name, problem(err))
	}
	var output struct {
		Replace []struct{ New struct{ Version string } }
	}
	if err := json.Unmarshal(out, &output); err != nil {
		return module{}, fmt.Errorf("reading %s: %w", name, err)
	}
	m := module{replaces: len(output.Replace)}
	for _, r := range output.Replace {
		if r.New.Version == "" {
			m.local++
		}
	}
	if m.modLines, err = linesOf(file); err != nil {
		return module{}, err
	}
	m.sumLines, err = linesOf(filepath.Join(filepath.Dir(file), "go.sum"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a module without dependencies has none
	}
	return m, err
}

func linesOf(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("counting lines: %w", err)
	}
	return bytes.Count(text, []byte("\n")), nil
}
