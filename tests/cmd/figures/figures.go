package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// smallPackage is the number of code lines below which a package is counted as small.
const smallPackage = 100

// percentile is the value that p percent of the values do not exceed; 0 of none.
func percentile(values []int, p int) int {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// packagesOf counts packages: a folder with Go files is one, external tests do not count. code
// are the lines of the product's packages, whatever else lies in their folders.
func packagesOf(sources []source) (code []int, all int) {
	byFolder, folders := map[string]int{}, map[string]bool{}
	for _, s := range sources {
		folders[s.folder()] = true
		if s.kind == product {
			byFolder[s.folder()] += s.code
		}
	}
	return slices.Sorted(maps.Values(byFolder)), len(folders)
}

// programsOf are the folders of the product's main packages: those that an image holds,
// and the others.
func programsOf(t tree) (shipped, others []string) {
	for _, s := range t.sources {
		if s.kind != product || s.pkg != "main" {
			continue
		}
		to := &others
		if slices.ContainsFunc(t.images, func(i image) bool { return i.program == s.folder() }) {
			to = &shipped
		}
		*to = append(*to, s.folder())
	}
	slices.Sort(shipped)
	slices.Sort(others)
	return slices.Compact(shipped), slices.Compact(others)
}

// share is the code lines of a part of the tree, by kind.
type share struct {
	folder                         string
	product, machinery, test, made int
}

// add counts a source.
func (s *share) add(x source) {
	switch x.kind {
	case product:
		s.product += x.code
	case machinery:
		s.machinery += x.code
	case test:
		s.test += x.code
	case generated:
		s.made += x.code
	}
}

// sharesOf are the shares of the top-level folders, the largest product first, and of all.
func sharesOf(sources []source) (folders []share, all share) {
	byFolder := map[string]*share{}
	for _, s := range sources {
		top, _, below := strings.Cut(s.path, "/")
		if !below {
			top = "."
		}
		if byFolder[top] == nil {
			byFolder[top] = &share{folder: top}
		}
		byFolder[top].add(s)
		all.add(s)
	}
	for _, s := range byFolder {
		folders = append(folders, *s)
	}
	slices.SortFunc(folders, func(x, y share) int {
		return cmp.Or(cmp.Compare(y.product, x.product), cmp.Compare(x.folder, y.folder))
	})
	return folders, all
}

// lengths are the lengths of the product's files and functions, and its long lines.
type lengths struct {
	files, functions []int
	long, comments   int
}

// lengthsOf measures the product.
func lengthsOf(sources []source) (out lengths) {
	for _, s := range sources {
		if s.kind != product {
			continue
		}
		out.files, out.functions = append(out.files, s.lines), append(out.functions, s.functions...)
		out.long += s.long
		out.comments += s.comments
	}
	return out
}
