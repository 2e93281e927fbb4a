// Package freetext finds rules that act on text which a program without rights can
// choose. Several services have such rules, in CEL over an event.
package freetext

import "regexp"

// message is the field event.message in the forms that CEL has for it.
var message = regexp.MustCompile(`\bevent\s*(?:\.\s*\??\s*message\b|\[\s*\??\s*(?:'message'|"message")\s*\])`)

// Warning says what is wrong with an expression that ReadsMessage.
const Warning = "reads event.message, in which programs without rights have words of their own (names of processes, files and commands): " +
	"use checkName, errorCode or entitiesImpacted"

// ReadsMessage tells whether a CEL expression reads the message of an event.
func ReadsMessage(expression string) bool { return message.MatchString(expression) }
