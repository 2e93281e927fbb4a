package daemon

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// controllersOf are controllers of the test's settings, all with one build function.
func controllersOf(build func(ctx context.Context, d *Daemon, cfg settings) error, names ...string) []Controller {
	var table []Controller
	for _, name := range names {
		table = append(table, NewController(name, name+" is a test.", settings{}, build))
	}
	return table
}

func TestControllersAreChosen(t *testing.T) {
	table := controllersOf(nil, "drainer", "janitor", "labeler")
	tests := []struct {
		name    string
		argv    string
		want    []string // the chosen ones, then the other arguments
		message string   // the error
	}{
		{"one", "controller --controllers=janitor --name=x", []string{"janitor", "--name=x"}, ""},
		{"one dash, apart, behind others", "controller --name=x -controllers janitor --place y", []string{"janitor", "--name=x", "--place", "y"}, ""},
		{"several, in the order given", "/bin/controller --controllers=labeler,drainer", []string{"labeler", "drainer"}, ""},
		{"by the name of a link", "/bin/janitor --name=x", []string{"janitor", "--name=x"}, ""},
		{"a command", "controller --controllers=janitor check -", []string{"janitor", "check", "-"}, ""},
		{"the version of all", "controller --version", nil, "version requested"},
		{"missing", "controller --name=x", nil, "--controllers is missing: name one or more of drainer, janitor, labeler"},
		{"help", "controller --help", nil, "flag: help requested"},
		{"empty", "controller --controllers=", nil, "--controllers is empty: name one or more of drainer, janitor, labeler"},
		{"without a value", "controller --controllers", nil, "--controllers is empty"},
		{"unknown", "controller --controllers=drainer,jnitor", nil, `unknown controller "jnitor", known controllers are drainer, janitor, labeler`},
		{"an empty name", "controller --controllers=drainer,,janitor", nil, "--controllers=drainer,,janitor has an empty name between its commas"},
		{"a name twice", "controller --controllers=drainer,janitor,drainer", nil, "--controllers names drainer twice"},
		{"the flag twice", "controller --controllers=drainer --controllers=janitor", nil, "--controllers is given more than once"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			chosen, rest, err := choose(strings.Fields(tc.argv), table)
			if tc.message != "" {
				if err == nil || !strings.Contains(err.Error(), tc.message) {
					t.Errorf("%v, want %q", err, tc.message)
				}
				return
			}
			var got []string
			for _, c := range chosen {
				got = append(got, c.Name)
			}
			if got = append(got, rest...); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%q, %v, want %q", got, err, tc.want)
			}
		})
	}
}
