package kernellog

import (
	"regexp"
	"strings"
)

// withoutColon begins a message of the open GPU driver's releases 515 to 530, which wrote
// "NVRM function: " where all others write "NVRM: function: ".
var withoutColon = regexp.MustCompile(`^NVRM (?:GPU\d{1,3} )?\w+: `)

// Colon writes the beginning of a message of the GPU driver as all of its releases but
// some do, with a colon.
func Colon(message string) string {
	if withoutColon.MatchString(message) {
		return "NVRM: " + strings.TrimPrefix(message, "NVRM ")
	}
	return message
}

// Tag is the program that a line names before at: the first word that ends in a
// colon, without its process id; empty when there is none.
func Tag(line string, at int) string {
	for word := range strings.FieldsSeq(line[:max(0, min(at, len(line)))]) {
		if name, is := strings.CutSuffix(word, ":"); is {
			name, _, _ = strings.Cut(name, "[")
			return name
		}
	}
	return ""
}
