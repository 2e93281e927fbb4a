package repository

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	generated "github.com/nvidia/nvsentinel/internal/testkit/reference"
)

// listed is one line of the navigation: a section of the first level, or a page.
var listed = regexp.MustCompile(`(?m)^  - ([A-Z][\w ]+):$|^ +- (?:[\w ]+: )?([\w/.-]+\.md)$`)

// navigation is what mkdocs.yml lists: the pages from docs, in order, and the section of each.
func navigation(t *testing.T) (pages []string, sections map[string]string) {
	t.Helper()
	_, nav, found := strings.Cut(read(t, "mkdocs.yml"), "\nnav:\n")
	if !found {
		t.Fatal("mkdocs.yml has no navigation")
	}
	section, sections := "", map[string]string{}
	for _, m := range listed.FindAllStringSubmatch(nav, -1) {
		if m[1] != "" {
			section = m[1]
			continue
		}
		pages, sections[m[2]] = append(pages, m[2]), section
	}
	return pages, sections
}

// TestNavigation: mkdocs.yml lists every page of docs once and nothing else, and a reader comes
// to every page from the first one by links.
func TestNavigation(t *testing.T) {
	pages, _ := navigation(t)
	files := texts(t)
	var have []string
	for file := range files {
		if page, is := strings.CutPrefix(file, "docs/"); is && filepath.Ext(page) == ".md" {
			have = append(have, page)
		}
	}
	slices.Sort(have)
	if want := slices.Sorted(slices.Values(pages)); !slices.Equal(have, want) {
		t.Errorf("docs has the pages\n%v, mkdocs.yml lists\n%v", have, want)
	}
	reached, next := map[string]bool{}, []string{"docs/index.md"}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		if reached[page] {
			continue
		}
		reached[page] = true
		for _, to := range references(page, files[page]) {
			next = append(next, to.path)
		}
	}
	for _, page := range have {
		if !reached["docs/"+page] {
			t.Errorf("no link leads to docs/%s", page)
		}
	}
}

// TestSummaryForLanguageModels compares docs/llms.txt with the pages: each with its title and
// its first sentence.
func TestSummaryForLanguageModels(t *testing.T) {
	pages, sections := navigation(t)
	out, last := "# NVSentinel\n\n> A suite of Kubernetes services that detects faults of GPU nodes and repairs them.\n", ""
	for _, page := range pages {
		if section := sections[page]; section != last {
			last = section
			out += "\n## " + section + "\n"
		}
		title, text, _ := strings.Cut(strings.TrimPrefix(read(t, "docs/"+page), "# "), "\n")
		out += fmt.Sprintf("\n- [%s](https://github.com/nvidia/nvsentinel/blob/main/docs/%s): %s", title, page, firstSentence(text))
	}
	generated.Check(t, "docs/llms.txt", strings.ReplaceAll(out, "\n\n\n", "\n\n")+"\n")
}

// firstSentence of the first paragraph that is text.
func firstSentence(text string) string {
	for paragraph := range strings.SplitSeq(fence.ReplaceAllString(text, ""), "\n\n") {
		if paragraph = strings.TrimSpace(paragraph); paragraph != "" && !strings.ContainsAny(paragraph[:1], "#|<-") {
			sentence, _, _ := strings.Cut(strings.Join(strings.Fields(paragraph), " "), ". ")
			return strings.TrimSuffix(sentence, ".") + "."
		}
	}
	return ""
}
