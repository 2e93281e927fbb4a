package convert

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// password stands in an address for the one that has to be put there.
const password = "PASSWORD"

// variables are those of the environment that named a part of the store, by the key of
// [datastore] that meant the same.
var variables = map[string]string{
	"DATASTORE_PROVIDER": "provider", "DATASTORE_HOST": "host", "DATASTORE_PORT": "port", "DATASTORE_DATABASE": "database",
	"MONGODB_DATABASE_NAME": "database", "DATASTORE_USERNAME": "user", "DATASTORE_PASSWORD": "password", "DATASTORE_PASSWORD_FILE": "passwordFile",
	"DATASTORE_SSLMODE": "sslMode", "DATASTORE_SSLROOTCERT": "caFile", "MONGODB_CA_CERT_PATH": "caFile", "DATASTORE_SSLCERT": "certFile",
	"MONGODB_CLIENT_CERT_PATH": "certFile", "DATASTORE_SSLKEY": "keyFile", "MONGODB_CLIENT_KEY_PATH": "keyFile",
	"DATASTORE_MAX_CONNECTIONS": "maxConnections", "DATASTORE_MAX_IDLE_CONNECTIONS": "minConnections", "MONGODB_URI": "uri",
}

// options are the address options for the parts of a store, in their order.
var options = []struct{ part, postgresql, mongodb string }{
	{"sslMode", "sslmode", "tls"},
	{"caFile", "sslrootcert", "tlsCAFile"},
	{"certFile", "sslcert", "tlsCertificateFile"},
	{"keyFile", "sslkey", "tlsPrivateKeyFile"},
	{"authMechanism", "", "authMechanism"},
	{"authSource", "", "authSource"},
	{"maxConnections", "pool_max_conns", "maxPoolSize"},
	{"minConnections", "pool_min_conns", "minPoolSize"},
	{"connectionLifetime", "pool_max_conn_lifetime", ""},
	{"idleTime", "pool_max_conn_idle_time", "maxIdleTimeMS"},
}

// storeParts are the parts of a store that become its address.
type storeParts struct {
	values      map[string]string
	unsupported []string // parts that no address has
}

func newStore() *storeParts { return &storeParts{values: map[string]string{}} }

func (s *storeParts) configured() bool { return len(s.values)+len(s.unsupported) > 0 }

// take keeps what an assignment in [datastore], or in a table below it, sets.
func (s *storeParts) take(path []string, statement string) {
	var keys map[string]any
	if _, err := toml.Decode(statement, &keys); err != nil {
		s.unsupported = append(s.unsupported, strings.Join(path, "."))
		return
	}
	s.tables(keys)
}

func (s *storeParts) tables(keys map[string]any) {
	for key, value := range keys {
		if below, ok := value.(map[string]any); ok {
			s.tables(below)
			continue
		}
		s.set(partOf(key), fmt.Sprint(value))
	}
}

// partOf is the part that a key names, whatever its case; the earlier NVSentinel calls some
// of them as their variables.
func partOf(key string) string {
	key = folded(key)
	if other, ok := map[string]string{
		"username": "user", "sslrootcert": "caFile", "cacertpath": "caFile", "sslcert": "certFile", "sslkey": "keyFile", "maxidleconnections": "minConnections",
	}[key]; ok {
		return other
	}
	for _, known := range append([]string{"provider", "uri", "host", "port", "database", "user", "password", "passwordFile"}, optionParts()...) {
		if folded(known) == key {
			return known
		}
	}
	return key
}

func optionParts() []string {
	var out []string
	for _, o := range options {
		out = append(out, o.part)
	}
	return out
}

func (s *storeParts) set(part, value string) {
	if value != "" && value != "0" {
		s.values[part] = value
	}
}

// line is the key store in a configuration file, behind the comments that explain it.
func (s *storeParts) line(r *Result) string {
	return fmt.Sprintf("%s%s\nstore = %q\n\n", mark, s.why(r), s.address(r))
}

// flag is the same as a flag.
func (s *storeParts) flag(r *Result) string {
	return fmt.Sprintf("%s%s\n--store=%s\n", mark, s.why(r), s.address(r))
}

// why explains what the store was made of, and leaves its secrets to a person.
func (s *storeParts) why(r *Result) string {
	if s.values["password"] != "" || s.values["passwordFile"] != "" || strings.Contains(s.values["uri"], "@") {
		from := ""
		if file := s.values["passwordFile"]; file != "" {
			from = " (it was in " + file + ")"
		}
		r.Left = append(r.Left, "store: replace "+password+from+
			", and preferably keep the whole address in a file and reference it: store = \"${file:/path}\" (docs/tasks/choose-a-store.md)")
	}
	return "the parts of the store are now one address"
}

// address puts the parts together. It holds no password.
func (s *storeParts) address(r *Result) string {
	base, provider := s.base()
	query := s.query(provider, r)
	for _, wrong := range s.unsupported {
		r.Left = append(r.Left, "datastore."+wrong+": the address has no such option (docs/tasks/choose-a-store.md)")
	}
	if len(query) == 0 {
		return base
	}
	sep := "?"
	if strings.Contains(base, "?") {
		sep = "&"
	}
	return base + sep + strings.Join(query, "&")
}

// base is the address without what options add, and the kind of store.
func (s *storeParts) base() (text, provider string) {
	if uri := s.values["uri"]; uri != "" {
		scheme, rest, _ := strings.Cut(uri, "://")
		if i := strings.LastIndex(rest, "@"); i >= 0 { // whatever a password has in it
			user, _, secret := strings.Cut(rest[:i], ":")
			if secret {
				user += ":" + password
			}
			rest = user + rest[i:]
		}
		authority, path, _ := strings.Cut(rest, "/")
		database, query, more := strings.Cut(path, "?")
		if database == "" {
			database = s.values["database"]
		}
		if more {
			database += "?" + query
		}
		return scheme + "://" + authority + "/" + database, "mongodb"
	}
	userinfo := ""
	if user := s.values["user"]; user != "" {
		userinfo = escaped(user) + "@"
		if s.values["password"] != "" || s.values["passwordFile"] != "" {
			userinfo = escaped(user) + ":" + password + "@"
		}
	}
	scheme := map[string]string{"postgresql": "postgres", "mongodb": "mongodb"}[s.values["provider"]]
	if scheme == "" {
		scheme = "postgres"
	}
	return scheme + "://" + userinfo + s.hosts() + "/" + escaped(s.values["database"]), s.values["provider"]
}

func (s *storeParts) hosts() string {
	var out []string
	for h := range strings.SplitSeq(s.values["host"], ",") {
		if port := s.values["port"]; port != "" && !strings.Contains(h, ":") {
			h += ":" + port
		}
		out = append(out, h)
	}
	return strings.Join(out, ",")
}

// query are the options that the parts become.
func (s *storeParts) query(provider string, r *Result) []string {
	var out []string
	known := []string{"provider", "uri", "host", "port", "database", "user", "password", "passwordFile"}
	for _, o := range options {
		known = append(known, o.part)
		value := s.values[o.part]
		if value == "" {
			continue
		}
		name := o.postgresql
		if provider == "mongodb" {
			name, value = s.mongo(o.part, o.mongodb, value)
		}
		if name == "" {
			r.Left = append(r.Left, fmt.Sprintf("datastore.%s = %s: a store of this kind has no such option (docs/tasks/choose-a-store.md)", o.part, s.values[o.part]))
			continue
		}
		out = append(out, name+"="+url.QueryEscape(value))
	}
	for part := range s.values {
		if !slices.Contains(known, part) {
			s.unsupported = append(s.unsupported, part)
		}
	}
	slices.Sort(s.unsupported)
	return out
}

// mongo is an option of MongoDB's driver, whose values differ.
func (s *storeParts) mongo(part, name, value string) (string, string) {
	switch part {
	case "sslMode":
		tls := map[string]string{"disable": "false", "require": "true", "verify-full": "true"}[value]
		if tls == "" {
			return "", ""
		}
		return name, tls
	case "certFile":
		if s.values["keyFile"] == "" {
			return "tlsCertificateKeyFile", value // one file holds both
		}
	case "idleTime":
		d, err := time.ParseDuration(value)
		if err != nil {
			return "", ""
		}
		return name, strconv.FormatInt(d.Milliseconds(), 10)
	}
	return name, value
}

func escaped(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
