package record

import "regexp"

// messageField is the field event.message in the forms that CEL has for it.
var messageField = regexp.MustCompile(`\bevent\s*(?:\.\s*\??\s*message\b|\[\s*\??\s*(?:'message'|"message")\s*\])`)

// MessageWarning describes what is wrong with an expression for which ReadsMessage is true.
const MessageWarning = "reads event.message, which contains text from unprivileged programs (names of processes, files and commands): " +
	"use checkName, errorCode or entitiesImpacted"

// ReadsMessage reports whether a CEL expression reads the message of an event.
func ReadsMessage(expression string) bool { return messageField.MatchString(expression) }
