package repository

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// private are words that pages and texts avoid, with the standard terms. They are words without a right use in
// the terms of the field: where a word has one, the phrase without it is listed. docs/contributing/style.md has
// more of them and explains the rule. Names that programs read stand in backquotes on pages, which are not read
// here.
var private = map[string]string{
	`(?:emergency )?brakes?`:                  "emergency stop, pause",
	`lemons?`:                                 "repeat offender",
	`stamp(?:s|ed|ing)?`:                      "status update",
	`mend(?:s|ed|ing)?`:                       "repair, restore",
	`(?:un)?judg(?:e|es|ed|ing|ement|ements)`: "evaluate, evaluation",
	`verdicts?`:                               "decision, evaluation, result",
	`tell|tells|told|telling|say|says|said|saying`:                     "report, record, log, show, return",
	`doorbells?|front doors?|rooms?`:                                   "notification, endpoint, service, capacity",
	`(?:set|sets|put|puts|kept) aside`:                                 "moved to the dead-letter queue",
	`stranded|in brief|by now|for good|anew|as ever|in force`:          "unresolved, condensed, currently, permanently, again, unchanged, active",
	`g[ai]ves? back|given back|lets? (?:go|in)|put away|puts? back`:    "release, uncordon, admit, remove, retry",
	`take[sn]? out of service|taken away|takes? away`:                  "cordon, quarantine, remove",
	`books?|whoever|of (?:ours|yours)|out of the box|by hand`:          "records, a noun, your own, by default, manually",
	`person's hand|needs? (?:a )?(?:human|person)|ends? with a person`: "requires manual intervention",
	`speaks? for|stands? back|standing back`:                           "report about, defer",
	`still stands?|standing (?:event|fault)s?`:                         "is open, open fault",
	`spool(?:s|ed)?`:          "write-ahead log, log",
	`dies|died|deaths?|lives`: "crash, run",
	`remind(?:s|ed|er|ers)?`:  "replay, resynchronize",
	`look(?:s|ed|ing)? at|(?:an?|each|every|last|next|first) looks?|looks`: "read, inspect, poll",
}

// privateWord finds any of them.
var privateWord = regexp.MustCompile(`(?i)\b(?:` + strings.Join(slices.Sorted(maps.Keys(private)), "|") + `)\b`)

// wordsIn are the private words of a text, each with the term to write.
func wordsIn(text string) (out []string) {
	for _, found := range privateWord.FindAllString(text, -1) {
		for pattern, instead := range private {
			if regexp.MustCompile(`(?i)^(?:` + pattern + `)$`).MatchString(found) {
				out = append(out, found+": write "+instead)
				break
			}
		}
	}
	return out
}

// plainText are the pages, those that programs write included, without those whose subject is the words.
func plainText(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for file, text := range texts(t) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		folder, _, nested := strings.Cut(file, "/")
		switch {
		case file == "docs/contributing/style.md": // its subject is the words
		case folder == "docs", folder == "examples", folder == "store-client", !nested:
			out[file] = text
		}
	}
	return out
}

// names are those of tests and of their cases, which pages list.
var names = regexp.MustCompile(`conformance suite, "[^"]*"|\b(?:Test|Fuzz)\w+(?:/[\w.]+(?:, [a-z0-9_][\w.]*)*)?`)

// privateWords are the findings in a page: the word, and what to write.
func privateWords(text string) []string {
	text = link.ReplaceAllString(code.ReplaceAllString(fence.ReplaceAllString(text, ""), "CODE"), "]")
	return wordsIn(names.ReplaceAllString(text, "TEST"))
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
		"Write `brake`.\n\n```\nlemon\n```\n":             0,
		"[Stop](../tasks/brake.md) the remediation first": 0,
	} {
		if got := privateWords(page); len(got) != want {
			t.Errorf("%q: %q, want %d findings", page, got, want)
		}
	}
}
