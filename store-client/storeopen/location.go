package storeopen

import (
	"errors"
	"fmt"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Location is the part of a service's configuration that names the location of the records; it
// is embedded.
type Location struct {
	_ struct{} `block:"Store" usage:"Location of the stored event records ([stores](../../tasks/choose-a-store.md))"`

	// Store is the address; required.
	Store config.Secret `toml:"store" flag:"store" usage:"Address of the store: sqlite:///path, postgres://user@host/database or mongodb://host,host/database."`
	// SingleHost admits a sqlite store.
	SingleHost bool `toml:"singleHost" flag:"single-host" usage:"If true, all services run on this host, which permits a SQLite store. Only the processes of one host can share it."`
}

// Validate returns an error if the address is invalid.
func (l Location) Validate() error {
	if l.Store.IsZero() {
		return errors.New("store (--store) is empty")
	}
	if err := Check(l.Store.Reveal(), Options{SingleHost: l.SingleHost}); err != nil {
		return fmt.Errorf("store (--store): %w", err)
	}
	return nil
}

// replacementHint is what is used instead of the parts of an address.
const replacementHint = "store (--store), the complete address (docs/tasks/choose-a-store.md)"

// FormerKeys implements config.Former.
func (Location) FormerKeys() map[string]string {
	return map[string]string{"datastore": replacementHint}
}

// FormerVariables implements config.Former.
func (Location) FormerVariables() map[string]string {
	out := map[string]string{}
	for _, name := range []string{
		"DATASTORE_PROVIDER", "DATASTORE_HOST", "DATASTORE_PORT", "DATASTORE_DATABASE", "DATASTORE_USERNAME", "DATASTORE_PASSWORD", "DATASTORE_PASSWORD_FILE",
		"DATASTORE_SSLMODE", "DATASTORE_SSLROOTCERT", "DATASTORE_SSLCERT", "DATASTORE_SSLKEY", "DATASTORE_MAX_CONNECTIONS", "DATASTORE_MAX_IDLE_CONNECTIONS",
		"MONGODB_URI", "MONGODB_DATABASE_NAME", "MONGODB_CA_CERT_PATH", "MONGODB_CLIENT_CERT_PATH", "MONGODB_CLIENT_KEY_PATH",
	} {
		out[name] = replacementHint
	}
	return out
}
