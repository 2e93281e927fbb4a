package postgresql

import (
	"cmp"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// allowUnsafe is the parameter of the address that admits a server which may
// lose what it acknowledged: throw-away servers of tests run so.
const allowUnsafe = "nvsentinel_allow_unsafe"

// Options of the address that bound the connections of a process, named as
// those of pgx's pool.
const (
	maxConns    = "pool_max_conns"
	minConns    = "pool_min_conns"
	maxLifetime = "pool_max_conn_lifetime"
	maxIdleTime = "pool_max_conn_idle_time"
)

// settings are the server's settings that an address may give to its sessions.
// Any other of PostgreSQL's can be given as options=-c%20name=value; what is not
// here is a typo, which must not weaken a connection silently.
var settings = []string{
	"application_name", "client_encoding", "client_min_messages", "idle_in_transaction_session_timeout", "lock_timeout", "options",
	"search_path", "statement_timeout", "synchronous_commit", "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval",
	"tcp_user_timeout", "timezone",
}

// limits bound the connections of a process; 0 is what the address does not set.
type limits struct {
	open, idle         int
	lifetime, idleTime time.Duration
}

// Defaults for what an address does not set.
const (
	// A service keeps all that a burst has opened: to connect costs the server more
	// than the work does that another connection would be opened for.
	openConns = 10
	idleTime  = 5 * time.Minute
	lifetime  = time.Hour
	// fewConns serve who only looks, or writes rarely.
	fewConns = 4
)

// service completes the limits of a service.
func (l limits) service() limits {
	l.open = cmp.Or(l.open, openConns)
	l.idle = min(cmp.Or(l.idle, l.open), l.open)
	l.lifetime, l.idleTime = cmp.Or(l.lifetime, lifetime), cmp.Or(l.idleTime, idleTime)
	return l
}

// few completes those of who needs no more.
func (l limits) few() limits {
	l.open = min(cmp.Or(l.open, openConns), fewConns)
	return l.service()
}

// connectionLifetime is how long connections of this process live: three quarters of their time at
// least. Processes that connected together, such as after an outage, do not do so
// again.
func (l limits) connectionLifetime() time.Duration { return l.lifetime - rand.N(l.lifetime/4+1) }

// open is the database, which connects when it is used.
func (p parsed) open(l limits) *sql.DB {
	db := stdlib.OpenDB(*p.conn)
	db.SetMaxOpenConns(l.open)
	db.SetMaxIdleConns(l.idle)
	db.SetConnMaxLifetime(l.connectionLifetime())
	db.SetConnMaxIdleTime(l.idleTime)
	return db
}

// parsed is an address that was read.
type parsed struct {
	conn   *pgx.ConnConfig
	limits limits
	unsafe bool
	// clear: the address admits a network without TLS. encrypted: it does not set a mode of
	// TLS, so that a network without TLS is not admitted.
	clear, encrypted bool
}

// Check validates an address, without connecting.
func Check(dsn string) error {
	_, err := parse(dsn)
	return err
}

// parse reads the address. Errors of pgx repeat it, so they are explained.
func parse(dsn string) (parsed, error) {
	p, err := read(dsn)
	if err != nil {
		return parsed{}, fmt.Errorf("%w: the address is not valid: %w", provider.ErrUnusable, provider.Explain(err, dsn))
	}
	return p, nil
}

// ambiguous reports whether the password may go on behind the first @, where pgx takes it
// for a host, which errors of connections name.
func ambiguous(dsn string) bool {
	_, rest, _ := strings.Cut(dsn, "://")
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return strings.Contains(rest, "@")
}

func read(dsn string) (parsed, error) {
	if ambiguous(dsn) {
		return parsed{}, errors.New("it contains more than one @")
	}
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		return parsed{}, err
	}
	p := parsed{conn: conf}
	p.secure(dsn)
	if err := p.own(); err != nil {
		return parsed{}, err
	}
	for name := range conf.RuntimeParams {
		if !slices.Contains(settings, strings.ToLower(name)) {
			return parsed{}, fmt.Errorf("it has an unknown option %q, use the options of libpq, %s, %s, %s, %s, %s and %s",
				name, maxConns, minConns, maxLifetime, maxIdleTime, allowUnsafe, strings.Join(settings, ", "))
		}
	}
	if conf.ConnectTimeout == 0 {
		conf.ConnectTimeout = connectTimeout
	}
	// What the store's meaning rests on is not left to the server's defaults.
	conf.RuntimeParams["default_transaction_isolation"] = "read committed"
	conf.RuntimeParams["client_encoding"] = "UTF8"
	if conf.RuntimeParams["synchronous_commit"] != "remote_apply" {
		conf.RuntimeParams["synchronous_commit"] = "on"
	}
	if conf.RuntimeParams["idle_in_transaction_session_timeout"] == "" {
		conf.RuntimeParams["idle_in_transaction_session_timeout"] = idleLimit
	}
	if conf.RuntimeParams["application_name"] == "" {
		conf.RuntimeParams["application_name"] = "nvsentinel"
	}
	return p, nil
}

// secure leaves out the ways over a network without TLS, unless the address asks for them:
// libpq's default would take them when the server has no TLS, or when somebody on the
// network claims that it has none.
func (p *parsed) secure(dsn string) {
	plain := func(host string, t *tls.Config) bool { return t == nil && provider.OnNetwork(host) }
	open := plain(p.conn.Host, p.conn.TLSConfig) ||
		slices.ContainsFunc(p.conn.Fallbacks, func(f *pgconn.FallbackConfig) bool { return plain(f.Host, f.TLSConfig) })
	asked := os.Getenv("PGSSLMODE") != "" || strings.Contains(dsn, "sslmode=") //nolint:forbidigo // the driver reads this variable itself
	p.clear, p.encrypted = open && asked, open && !asked
	if p.encrypted {
		p.conn.Fallbacks = slices.DeleteFunc(p.conn.Fallbacks, func(f *pgconn.FallbackConfig) bool { return plain(f.Host, f.TLSConfig) })
	}
}

// hint explains an error of a connection that had to be encrypted.
func (p *parsed) hint(err error) error {
	if err == nil || !p.encrypted || !strings.Contains(err.Error(), "refused TLS") {
		return err
	}
	return fmt.Errorf("%w: %w. The address has no sslmode, so a network connection requires TLS: set sslmode=verify-full to verify the server, or sslmode=disable to connect without TLS", provider.ErrUnusable, err)
}

// own takes out the options that are ours and not the server's.
func (p *parsed) own() error {
	take := func(name string, read func(text string) bool, what string) error {
		text, given := p.conn.RuntimeParams[name]
		delete(p.conn.RuntimeParams, name)
		if given && !read(text) {
			return fmt.Errorf("its option %s=%q is %s", name, text, what)
		}
		return nil
	}
	count := func(n *int, least int) func(string) bool {
		return func(text string) (ok bool) {
			v, err := strconv.Atoi(text)
			*n = v
			return err == nil && v >= least
		}
	}
	span := func(d *time.Duration) func(string) bool {
		return func(text string) (ok bool) {
			v, err := time.ParseDuration(text)
			*d = v
			return err == nil && v > 0
		}
	}
	truth := func(text string) bool {
		p.unsafe = text == "true"
		return p.unsafe || text == "false" || text == ""
	}
	for _, err := range []error{
		take(allowUnsafe, truth, "neither true nor false"),
		take(maxConns, count(&p.limits.open, 2), "not a number of at least 2"),
		take(minConns, count(&p.limits.idle, 1), "not a number of at least 1"),
		take(maxLifetime, span(&p.limits.lifetime), "not a duration such as 30m"),
		take(maxIdleTime, span(&p.limits.idleTime), "not a duration such as 30m"),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
