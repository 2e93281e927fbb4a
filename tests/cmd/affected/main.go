// Command affected prints the packages whose tests a change can break, one a line.
//
// Exit status: 0 printed, 1 git or go list failed, 2 bad arguments.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/tests/testrun"
)

// prefix is what the import paths of the repository begin with.
const prefix = "github.com/nvidia/nvsentinel/"

func main() { os.Exit(run()) }

func run() int {
	since := flag.String("since", "origin/main", "Commit to compare with: files that differ from the common ancestor, and those that are not committed.")
	shard := flag.String("shard", "", "Part of the packages, such as 1/3. Empty prints all.")
	flag.Parse()
	if _, err := testrun.Shard(nil, *shard); err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		return 2
	}
	packages, err := affected(*since)
	if err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		return 1
	}
	part, err := testrun.Shard(packages, *shard)
	if err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		return 1
	}
	for _, dir := range part {
		fmt.Println(dir)
	}
	return 0
}

func affected(since string) ([]string, error) {
	changed, err := lines("git", "diff", "--name-only", "--no-renames", "--merge-base", since)
	if err != nil {
		return nil, err
	}
	added, err := lines("git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	all, err := list()
	if err != nil {
		return nil, err
	}
	return testrun.Affected(all, append(changed, added...)), nil
}

func lines(name string, args ...string) (out []string, err error) {
	text, err := output(name, args...)
	for line := range strings.Lines(string(text)) {
		out = append(out, strings.TrimSuffix(line, "\n"))
	}
	return out, err
}

func output(name string, args ...string) ([]byte, error) {
	text, err := exec.Command(name, args...).Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		return nil, fmt.Errorf("running %s %s: %w\n%s", name, strings.Join(args, " "), err, failed.Stderr)
	}
	return text, err
}

// binary is what go list prints about the binary of a package's tests.
type binary struct {
	ImportPath string
	Deps       []string
}

// list returns the packages of the workspace that have tests.
func list() (out []testrun.Package, err error) {
	text, err := output("go", "list", "-test", "-json=ImportPath,Deps", "work")
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var b binary
		switch err := decoder.Decode(&b); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("reading the output of go list: %w", err)
		}
		if path, is := strings.CutSuffix(b.ImportPath, ".test"); is {
			p := testrun.Package{Dir: folder(path), Links: links(b.Deps)}
			if p.Reads, err = reads(p); err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
}

// links are the folders of dependencies within the repository, each once.
func links(deps []string) (out []string) {
	for _, dep := range deps {
		path, _, variant := strings.Cut(dep, " ")
		if variant {
			path = strings.TrimSuffix(path, "_test")
		}
		if strings.HasPrefix(path, prefix) {
			out = append(out, folder(path))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reads are the folders that a package's tests name, or a package below tests that they link.
// Other packages name pages too, in their messages.
func reads(p testrun.Package) (out []string, err error) {
	for _, dir := range p.Links {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			ofTests := strings.HasSuffix(file, "_test.go")
			if ofTests && dir != p.Dir || !ofTests && !strings.HasPrefix(dir, "./tests/") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("reading the tests of %s: %w", p.Dir, err)
			}
			for _, top := range testrun.Readable {
				if bytes.Contains(text, []byte(top+"/")) || bytes.Contains(text, []byte(`"`+top+`"`)) {
					out = append(out, top)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func folder(path string) string {
	return "./" + filepath.ToSlash(strings.TrimPrefix(path, prefix))
}
