package report

import (
	"fmt"
	"os"

	"github.com/BurntSushi/toml"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Names are the check names that connectors give to agents.
type Names struct {
	owners []record.CheckOwner
	from   string
}

// ReadNames reads them from a connector's configuration file; without a path they are
// the built-in ones.
func ReadNames(path string) (Names, error) {
	n := Names{record.DefaultCheckOwners(), "the connectors' built-in names"}
	if path == "" {
		return n, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Names{}, fmt.Errorf("reading the connectors' check names (publishersConfigPath): %w", err)
	}
	var document struct {
		Publishers struct {
			Agent []struct {
				Name   string   `toml:"name"`
				Checks []string `toml:"checks"`
			} `toml:"agent"`
		} `toml:"publishers"`
	}
	if err := toml.Unmarshal(text, &document); err != nil {
		return Names{}, fmt.Errorf("reading the connectors' check names (publishersConfigPath) from %s: %w", path, err)
	}
	if document.Publishers.Agent == nil {
		return n, nil
	}
	n = Names{from: path}
	for _, a := range document.Publishers.Agent {
		n.owners = append(n.owners, record.CheckOwner{Agent: a.Name, Checks: a.Checks})
	}
	return n, nil
}

// Of is a check of names that an agent is to use: an error states to whom a name belongs,
// and what would be right.
func (n Names) Of(agent string) func(name string) error {
	return func(name string) error {
		owner, by := record.CheckOwnerOf(n.owners, name)
		if owner == "" || owner == agent {
			return nil
		}
		return fmt.Errorf("%q belongs to agent %q (checks %q in %s), and connectors reject its events: choose another name, "+
			"or add %q to the checks of %q in the [[publishers.agent]] of the connectors and of this service's --publishers-config-path",
			name, owner, by, n.from, name, agent)
	}
}
