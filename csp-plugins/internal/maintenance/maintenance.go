// Package maintenance holds what the adapters of all clouds say in one form: what a
// provider's codes mean.
package maintenance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/api/protos"
)

// Code is what a provider's name of a kind of maintenance means.
type Code struct {
	// Name is the provider's.
	Name string
	// Action is what repairs a machine to which it happened.
	Action protos.RecommendedAction
	// Unplanned is maintenance that nobody scheduled; Emergency quarantines at once.
	Unplanned, Emergency bool
	// Why says in half a sentence why the action is that one.
	Why string
	// Source is the address of the page on which the provider publishes the name.
	Source string
}

// Unknown is the meaning of a code that no table has: a person reads it. Nothing is
// rebooted or replaced for a word that nobody here has read.
func Unknown(name string) Code {
	return Code{Name: name, Action: protos.RecommendedAction_CONTACT_SUPPORT, Why: "no table has it"}
}

// Find is the meaning of a code; Unknown where the table has it not.
func Find(table []Code, name string) Code {
	if i := slices.IndexFunc(table, func(c Code) bool { return c.Name == name }); i >= 0 {
		return table[i]
	}
	return Unknown(name)
}

// Markdown is a table for people, as it stands in the README beside this file.
func Markdown(table []Code) string {
	var b strings.Builder
	b.WriteString("| code | action | | why | source |\n|---|---|---|---|---|\n")
	for _, c := range table {
		var marks []string
		if c.Unplanned {
			marks = append(marks, "unplanned")
		}
		if c.Emergency {
			marks = append(marks, "emergency")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | [page](%s) |\n", c.Name, c.Action, strings.Join(marks, ", "), c.Why, c.Source)
	}
	return b.String()
}
