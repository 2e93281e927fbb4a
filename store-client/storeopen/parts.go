package storeopen

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Parts name a store piece by piece, or add to an address what should not
// stand in it. The variables are those of existing installations. What an
// address says itself cannot be said differently here.
type Parts struct {
	// Provider is postgresql or mongodb.
	Provider string `toml:"provider" env:"DATASTORE_PROVIDER"`
	// URI is a whole address.
	URI config.Secret `toml:"uri" env:"MONGODB_URI"`
	// Host is one host, or several separated by commas, each with a port if it
	// has one of its own.
	Host string `toml:"host" env:"DATASTORE_HOST"`
	// Port of hosts that bear none; 0 is the provider's own.
	Port int `toml:"port" env:"DATASTORE_PORT"`
	// Database has the records; User is the account there.
	Database string `toml:"database" env:"DATASTORE_DATABASE,MONGODB_DATABASE_NAME"`
	User     string `toml:"user" env:"DATASTORE_USERNAME"`
	// Password comes from the environment, or from PasswordFile; a
	// configuration file has no key for it.
	Password config.Secret `toml:"-" env:"DATASTORE_PASSWORD"`
	// PasswordFile is read when the store is opened; a line's end at its end
	// does not count.
	PasswordFile config.SecretFile `toml:"passwordFile" env:"DATASTORE_PASSWORD_FILE"`
	// SSLMode is disable, allow, prefer, require, verify-ca or verify-full;
	// MongoDB's driver knows disable and verify-full.
	SSLMode string `toml:"sslMode" env:"DATASTORE_SSLMODE"`
	// CAFile, CertFile and KeyFile are PEM files: who signs servers, and who we
	// are.
	CAFile   string `toml:"caFile" env:"DATASTORE_SSLROOTCERT,MONGODB_CA_CERT_PATH"`
	CertFile string `toml:"certFile" env:"DATASTORE_SSLCERT,MONGODB_CLIENT_CERT_PATH"`
	KeyFile  string `toml:"keyFile" env:"DATASTORE_SSLKEY,MONGODB_CLIENT_KEY_PATH"`
	// AuthMechanism of MongoDB: SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509 or
	// another of its driver's; PostgreSQL's server chooses its own.
	AuthMechanism string `toml:"authMechanism"`
	// AuthSource is the database of MongoDB that knows the user.
	AuthSource string `toml:"authSource"`
	// MaxConnections bounds the connections of this process, MinConnections of
	// them stay open when idle; 0 is the provider's default.
	MaxConnections int `toml:"maxConnections" env:"DATASTORE_MAX_CONNECTIONS"`
	MinConnections int `toml:"minConnections" env:"DATASTORE_MAX_IDLE_CONNECTIONS"`
	// ConnectionLifetime is when PostgreSQL's connections are replaced, IdleTime
	// when one that is not used is closed; 0 is the provider's default.
	ConnectionLifetime time.Duration `toml:"connectionLifetime"`
	IdleTime           time.Duration `toml:"idleTime"`
}

// given names the parts that are set, by their keys.
func (p Parts) given() []string {
	var out []string
	for _, k := range []struct {
		key string
		set bool
	}{
		{"provider", p.Provider != ""},
		{"uri", !p.URI.IsZero()},
		{"host", p.Host != ""},
		{"port", p.Port != 0},
		{"database", p.Database != ""},
		{"user", p.User != ""},
		{"password (DATASTORE_PASSWORD)", !p.Password.IsZero()},
		{"passwordFile", p.PasswordFile != ""},
		{"sslMode", p.SSLMode != ""},
		{"caFile", p.CAFile != ""},
		{"certFile", p.CertFile != ""},
		{"keyFile", p.KeyFile != ""},
		{"authMechanism", p.AuthMechanism != ""},
		{"authSource", p.AuthSource != ""},
		{"maxConnections", p.MaxConnections != 0},
		{"minConnections", p.MinConnections != 0},
		{"connectionLifetime", p.ConnectionLifetime != 0},
		{"idleTime", p.IdleTime != 0},
	} {
		if k.set {
			out = append(out, "datastore."+k.key)
		}
	}
	return out
}

// Address is the address that a configuration names: store, completed by the
// parts, or the parts alone. It may hold a password.
func (p Parts) Address(store string) (string, error) {
	given := p.given()
	if len(given) == 0 {
		return store, nil
	}
	if store != "" && !p.URI.IsZero() {
		return "", errors.New("the address stands in store and in datastore.uri (MONGODB_URI): give one")
	}
	if store == "" {
		store = p.URI.Reveal()
	}
	a, err := p.base(store)
	if err != nil {
		return "", err
	}
	if a.scheme == "sqlite" {
		return "", fmt.Errorf("a sqlite store has no connection, but %s is given", strings.Join(given, ", "))
	}
	if err := p.complete(&a); err != nil {
		return "", err
	}
	return a.String(), nil
}

// base is the address to complete.
func (p Parts) base(store string) (address, error) {
	if store != "" {
		k, err := lookup(store)
		if err != nil {
			return address{}, err
		}
		if p.Provider != "" && p.Provider != k.name {
			return address{}, fmt.Errorf("datastore.provider (DATASTORE_PROVIDER) is %q, but the address is one of %s", p.Provider, k.name)
		}
		return split(store), nil
	}
	for _, k := range kinds {
		if k.name != p.Provider || k.name == "sqlite" {
			continue
		}
		if p.Host == "" {
			return address{}, errors.New("datastore.host (DATASTORE_HOST) is empty, and no address is given")
		}
		return address{scheme: k.schemes[0]}, nil
	}
	return address{}, fmt.Errorf("datastore.provider (DATASTORE_PROVIDER) %q is unknown; known are postgresql and mongodb, and sqlite by an address", p.Provider)
}

// complete writes every part into its place of the address.
func (p Parts) complete(a *address) error {
	password, err := p.password()
	if err != nil {
		return err
	}
	problems := []error{
		fill("host (DATASTORE_HOST)", &a.hosts, p.hosts()),
		fill("database (DATASTORE_DATABASE)", &a.database, escape(p.Database)),
		fill("user (DATASTORE_USERNAME)", &a.user, escape(p.User)),
		fill("password", &a.password, escape(password)),
	}
	options, err := p.options(a.scheme == "postgres" || a.scheme == "postgresql")
	problems = append(problems, err)
	for _, o := range options {
		problems = append(problems, a.option(o.part, o.name, o.value))
	}
	return errors.Join(problems...)
}

// hosts are the hosts with their ports.
func (p Parts) hosts() string {
	if p.Host == "" || p.Port == 0 {
		return p.Host
	}
	var out []string
	for h := range strings.SplitSeq(p.Host, ",") {
		if !strings.Contains(h, ":") {
			h += ":" + strconv.Itoa(p.Port)
		}
		out = append(out, h)
	}
	return strings.Join(out, ",")
}

// password reads where the password is.
func (p Parts) password() (string, error) {
	if p.PasswordFile == "" {
		return p.Password.Reveal(), nil
	}
	if !p.Password.IsZero() {
		return "", errors.New("the password stands in DATASTORE_PASSWORD and in datastore.passwordFile: give one")
	}
	password, err := p.PasswordFile.Read()
	if err != nil {
		return "", fmt.Errorf("datastore.passwordFile: %w", err)
	}
	return password, nil
}
