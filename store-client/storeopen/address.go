package storeopen

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// address is an address in its pieces, each as it is written there.
type address struct {
	scheme, user, password, hosts, database string
	query                                   []string
}

// split takes an address apart; MongoDB's may have several hosts, which no
// URL has.
func split(text string) address {
	var a address
	var rest, query, authority string
	a.scheme, rest, _ = strings.Cut(text, "://")
	rest, query, _ = strings.Cut(rest, "?")
	authority, a.database, _ = strings.Cut(rest, "/")
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		a.user, a.password, _ = strings.Cut(authority[:i], ":")
		authority = authority[i+1:]
	}
	a.hosts = authority
	if query != "" {
		a.query = strings.Split(query, "&")
	}
	return a
}

// String puts the pieces together.
func (a address) String() string {
	who := a.user
	if a.password != "" {
		who += ":" + a.password
	}
	if who != "" {
		who += "@"
	}
	text := a.scheme + "://" + who + a.hosts + "/" + a.database
	if len(a.query) > 0 {
		text += "?" + strings.Join(a.query, "&")
	}
	return text
}

// escape writes a text as it stands before the options of an address.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// fill writes a part into its place, if nothing else stands there.
func fill(part string, place *string, value string) error {
	if value == "" {
		return nil
	}
	if *place != "" && *place != value {
		return fmt.Errorf("datastore.%s: the address says another one", part)
	}
	*place = value
	return nil
}

// option adds an option, if the address does not say another.
func (a *address) option(part, name, value string) error {
	pair := name + "=" + url.QueryEscape(value)
	for _, q := range a.query {
		if q == pair {
			return nil
		}
		if key, _, _ := strings.Cut(q, "="); strings.EqualFold(key, name) {
			return fmt.Errorf("datastore.%s: the address has another %s", part, name)
		}
	}
	a.query = append(a.query, pair)
	return nil
}

// option is a part as an option of an address.
type option struct{ part, name, value string }

// options are the parts that an address has as options.
func (p Parts) options(postgres bool) ([]option, error) {
	if postgres {
		return p.postgresOptions()
	}
	return p.mongoOptions()
}

func (p Parts) postgresOptions() ([]option, error) {
	var err error
	if p.AuthMechanism != "" || p.AuthSource != "" {
		err = errors.New("datastore.authMechanism, datastore.authSource: PostgreSQL's server chooses how users prove who they are")
	}
	return set(
		option{"sslMode (DATASTORE_SSLMODE)", "sslmode", p.SSLMode},
		option{"caFile", "sslrootcert", p.CAFile},
		option{"certFile", "sslcert", p.CertFile},
		option{"keyFile", "sslkey", p.KeyFile},
		option{"maxConnections", "pool_max_conns", number(p.MaxConnections)},
		option{"minConnections", "pool_min_conns", number(p.MinConnections)},
		option{"connectionLifetime", "pool_max_conn_lifetime", span(p.ConnectionLifetime)},
		option{"idleTime", "pool_max_conn_idle_time", span(p.IdleTime)},
	), err
}

func (p Parts) mongoOptions() ([]option, error) {
	var problems []error
	if p.ConnectionLifetime != 0 {
		problems = append(problems, errors.New("datastore.connectionLifetime: MongoDB's driver has none; idleTime closes unused connections"))
	}
	tls, known := map[string]string{"": "", "disable": "false", "require": "true", "verify-full": "true"}[p.SSLMode]
	if !known {
		problems = append(problems, fmt.Errorf("datastore.sslMode (DATASTORE_SSLMODE) %q: with MongoDB it is disable, or require or verify-full, which both verify the server", p.SSLMode))
	}
	if tls == "" && (p.CAFile != "" || p.CertFile != "") {
		tls = "true"
	}
	cert := "tlsCertificateFile"
	if p.KeyFile == "" {
		cert = "tlsCertificateKeyFile" // one file holds both
	}
	idle := ""
	if p.IdleTime != 0 {
		idle = strconv.FormatInt(p.IdleTime.Milliseconds(), 10)
	}
	return set(
		option{"sslMode (DATASTORE_SSLMODE)", "tls", tls},
		option{"caFile", "tlsCAFile", p.CAFile},
		option{"certFile", cert, p.CertFile},
		option{"keyFile", "tlsPrivateKeyFile", p.KeyFile},
		option{"authMechanism", "authMechanism", p.AuthMechanism},
		option{"authSource", "authSource", p.AuthSource},
		option{"maxConnections", "maxPoolSize", number(p.MaxConnections)},
		option{"minConnections", "minPoolSize", number(p.MinConnections)},
		option{"idleTime", "maxIdleTimeMS", idle},
	), errors.Join(problems...)
}

// set leaves out the options without a value.
func set(all ...option) []option {
	var out []option
	for _, o := range all {
		if o.value != "" {
			out = append(out, o)
		}
	}
	return out
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
