package testrun

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Package is a package with tests.
type Package struct {
	// Dir is its folder, such as "./tests/journey".
	Dir string
	// Links are the folders of all packages of the repository that its tests link, its own included.
	Links []string
	// Reads are the folders at the top of the repository whose files its tests read, such as "docs".
	Reads []string
}

// rules is the package that checks the repository as a whole. It runs with every change.
const rules = "./tests/repository"

// Readable are the folders at the top of the repository that hold no package, but files that
// tests read.
var Readable = []string{"distros", "docs", "examples"}

// Affected returns the folders of the packages whose tests a change of files can break: those
// that link a changed package, and those that read a changed file. A change of the modules
// affects all.
func Affected(all []Package, changed []string) []string {
	touched := map[string]bool{rules: true}
	packages := map[string]bool{}
	for _, p := range all {
		for _, dir := range p.Links {
			packages[dir] = true
		}
	}
	read := map[string]bool{}
	for _, file := range changed {
		if slices.Contains([]string{"go.mod", "go.sum", "go.work", "go.work.sum"}, path.Base(file)) && !strings.HasPrefix(file, "hack/") {
			return dirs(all, func(Package) bool { return true })
		}
		if dir := owner(packages, file); dir != "" {
			touched[dir] = true
		}
		top, _, _ := strings.Cut(file, "/")
		read[top] = true
	}
	return dirs(all, func(p Package) bool {
		return slices.ContainsFunc(p.Links, func(dir string) bool { return touched[dir] }) ||
			slices.ContainsFunc(p.Reads, func(top string) bool { return read[top] })
	})
}

// owner is the folder of the package to which a file belongs, such as its test data; empty if
// there is none.
func owner(packages map[string]bool, file string) string {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if packages["./"+dir] {
			return "./" + dir
		}
	}
	return ""
}

func dirs(all []Package, chosen func(Package) bool) (out []string) {
	for _, p := range all {
		if chosen(p) {
			out = append(out, p.Dir)
		}
	}
	slices.Sort(out)
	return out
}

// Longest are the packages that run for a minute or more, the longest first.
var Longest = []string{
	"./store-client/mongodb", "./janitor", "./store-client/postgresql", "./platform-connectors", "./tests/journey",
	"./tests/chart", "./node-drainer/internal/reconciler", "./tests/objects", "./fault-quarantine/internal/reconciler",
	"./fault-quarantine", "./tests/demo", "./janitor/internal/reconciler", "./internal/localcluster",
	"./fault-remediation/internal/reconciler", "./tests/strategy", "./store-client/sqlite",
}

// Shard returns the part of the packages that one of several machines runs, as "1/3". The
// longest packages are dealt out first, so that no machine gets most of them. An empty shard
// is everything.
func Shard(packages []string, shard string) ([]string, error) {
	if shard == "" {
		return packages, nil
	}
	first, second, _ := strings.Cut(shard, "/")
	number, err := strconv.Atoi(first)
	of, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || number < 1 || number > of {
		return nil, fmt.Errorf("the shard is %q: must be a number and how many there are, such as 1/3", shard)
	}
	rank := func(dir string) int {
		if i := slices.Index(Longest, dir); i >= 0 {
			return i
		}
		return len(Longest)
	}
	ordered := slices.SortedStableFunc(slices.Values(packages), func(a, b string) int { return rank(a) - rank(b) })
	var out []string
	for i := number - 1; i < len(ordered); i += of {
		out = append(out, ordered[i])
	}
	return out, nil
}
