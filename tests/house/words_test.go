package house

import (
	"regexp"
	"strings"
	"testing"
)

// private are words that the pages avoid, with the standard terms. docs/contributing/style.md
// explains the rule; names that programs read stand in backquotes, which are not read here.
var private = map[string]string{
	`(?:emergency )?brakes?`:                                    "emergency stop",
	`lemons?`:                                                   "repeat offender",
	`stamp(?:s|ed|ing)?`:                                        "status update",
	`mend(?:s|ed|ing)?`:                                         "repair, restore",
	`judg(?:e|es|ed|ing|ement|ements)`:                          "evaluate, evaluation",
	`tell|tells|told|telling|say|says|said|saying`:              "report, record, log, show, return",
	`doorbells?|front doors?|rooms?`:                            "notification, endpoint, service",
	`(?:set|sets|put|puts) aside`:                               "moved to the dead-letter queue",
	`stranded|in brief|by now|anew|as ever|in force`:            "open, condensed, currently, again, unchanged, active",
	`g[ai]ves? back|given back|lets? go|put away`:               "release, uncordon, remove",
	`keeps? books|whoever|of (?:ours|yours)|out of the box`:     "record calls, a noun, your own, by default",
	`person's hand|needs? (?:a )?human|speaks? for|stands back`: "manual intervention, report about, defer",
}

// plainText are the pages that people write, without those whose subject is the words.
func plainText(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for file, text := range texts(t) {
		if !strings.HasSuffix(file, ".md") || strings.Contains(text, "\nWritten from ") {
			continue
		}
		folder, _, nested := strings.Cut(file, "/")
		switch {
		case file == "docs/contributing/style.md", file == "docs/reference/glossary.md":
		case folder == "docs", folder == "examples", folder == "store-client", !nested:
			out[file] = text
		}
	}
	return out
}

// names are those of tests and of their cases, which pages list.
var names = regexp.MustCompile(`conformance suite, "[^"]*"|\b(?:Test|Fuzz)\w+(?:/[\w.]+(?:, [a-z0-9_][\w.]*)*)?`)

// privateWords are the findings in a page: the word, and what to write.
func privateWords(text string) (out []string) {
	text = names.ReplaceAllString(link.ReplaceAllString(code.ReplaceAllString(fence.ReplaceAllString(text, ""), "CODE"), "]"), "TEST")
	for pattern, instead := range private {
		for _, found := range regexp.MustCompile(`(?i)\b(?:`+pattern+`)\b`).FindAllString(text, -1) {
			out = append(out, found+": write "+instead)
		}
	}
	return out
}

// TestWords: the pages use standard terms.
func TestWords(t *testing.T) {
	pages := plainText(t)
	if len(pages) < 80 {
		t.Errorf("only %d pages were read", len(pages))
	}
	for file, text := range pages {
		for _, found := range privateWords(text) {
			t.Errorf("%s: %s", file, found)
		}
	}
}

// TestAPrivateWordIsFound: a planted word fails the check, and a name in backquotes does not.
func TestAPrivateWordIsFound(t *testing.T) {
	for page, want := range map[string]int{
		"The node is a lemon.\n":                          1,
		"Each room stamps the record, says the service.":  3,
		"Run `nvsentinel brake on`.\n\n```\nlemon\n```\n": 0,
		"[Stop](../tasks/brake.md) the remediation first": 0,
	} {
		if got := privateWords(page); len(got) != want {
			t.Errorf("%q: %q, want %d findings", page, got, want)
		}
	}
}
