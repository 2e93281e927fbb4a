package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	fence = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	// code is what is no link of a page although it looks like one.
	code = regexp.MustCompile("`[^`\n]*`")
	// link is [text](target); heading a title of a page.
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	// anchor is one that a page sets itself, for a row of a table.
	anchor = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	// mention is a page that another file names, with an anchor or without.
	mention = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md(#[a-z0-9_-]+)?`)
)

// reference is a file, from the root of the repository, and an anchor in it or none.
type reference struct{ path, anchor string }

// TestLinksLeadSomewhere: every relative link of a page, and every page that a comment,
// a message or a value names, exists, and so does the anchor.
func TestLinksLeadSomewhere(t *testing.T) {
	files := texts(t)
	anchors := map[string][]string{}
	for path, text := range files {
		if strings.HasSuffix(path, ".md") {
			anchors[path] = anchorsOf(text)
		}
	}
	found := 0
	for path, text := range files {
		for _, to := range references(path, text) {
			found++
			if _, err := os.Stat(filepath.Join("..", "..", to.path)); err != nil {
				t.Errorf("%s names %s, which does not exist", path, to.path)
			} else if to.anchor != "" && !slices.Contains(anchors[to.path], to.anchor) {
				t.Errorf("%s names %s#%s, which has no such heading", path, to.path, to.anchor)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d links: too few to mean anything", found)
	}
}

// texts are the pages and the sources of the repository, by path from its root.
func texts(t *testing.T) map[string]string {
	t.Helper()
	root, files := filepath.Join("..", ".."), map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name != "." && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case !entry.Type().IsRegular() || !slices.Contains([]string{".md", ".go", ".yaml", ".toml", ".tpl", ".sh", ".proto"}, filepath.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(path)
		files[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// references are what a file leads to within the repository.
func references(path, text string) (out []reference) {
	if !strings.HasSuffix(path, ".md") {
		for _, m := range mention.FindAllString(text, -1) {
			to, anchor, _ := strings.Cut(m, "#")
			out = append(out, reference{to, anchor})
		}
		return out
	}
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(fence.ReplaceAllString(text, ""), "x"), -1) {
		to, anchor, _ := strings.Cut(m[1], "#")
		switch {
		case strings.Contains(m[1], "://"):
			continue
		case to == "":
			to = path
		default:
			to = filepath.ToSlash(filepath.Join(filepath.Dir(path), to))
		}
		out = append(out, reference{to, anchor})
	}
	return out
}

// anchorsOf are the anchors that a page's headings have on the forges: in lower case,
// blanks as hyphens, without punctuation, numbered when they come again.
func anchorsOf(page string) (out []string) {
	seen := map[string]int{}
	for _, m := range anchor.FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		seen[anchor]++
		if n := seen[anchor]; n > 1 {
			anchor += "-" + strconv.Itoa(n-1)
		}
		out = append(out, anchor)
	}
	return out
}

func TestAnchorsAreThoseOfTheForges(t *testing.T) {
	got := anchorsOf("# A person's hand\n\n```\n# no heading\n```\n## `why`: what, and 2\n## a_b\n## a_b\n| <a id=\"row\"></a>`Row` |\n")
	if want := []string{"row", "a-persons-hand", "why-what-and-2", "a_b", "a_b-1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
