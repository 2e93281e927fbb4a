package storeopen

import (
	"errors"
	"fmt"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Location is the part of a service's configuration that says where the records
// are; it is embedded.
type Location struct {
	// Store is the address; it, or Datastore, is required.
	Store config.Secret `toml:"store" flag:"store" usage:"address of the records: sqlite:///path, postgres://user@host/database or mongodb://host,host/database"`
	// Datastore completes the address, or names the store without one.
	Datastore Parts `toml:"datastore"`
	// SingleHost admits a sqlite store.
	SingleHost bool `toml:"singleHost" old:"single-host" flag:"single-host" usage:"all services run on this host, so that a sqlite store may be used, which only the processes of one host can share"`
}

// Validate says what is wrong with the address and the parts.
func (l Location) Validate() error {
	if l.Store.IsZero() && len(l.Datastore.given()) == 0 {
		return errors.New("store (--store) is empty, and no key of datastore is given")
	}
	if err := Check(l.Store.Reveal(), Options{SingleHost: l.SingleHost, Parts: l.Datastore}); err != nil {
		return fmt.Errorf("store (--store): %w", err)
	}
	return nil
}
