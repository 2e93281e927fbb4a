package postgresql_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const (
	// password has what an address has to escape.
	password = "s3cr3t/w:th@odd?ch#rs%41+ &é"
	// wrongPassword is one that no user has.
	wrongPassword = "wr0ngW0rd"
)

// secured is a server that lets nobody in without TLS: the user certified by a
// certificate, the user worded by a password.
func secured(t *testing.T, ca *storetest.Authority) (*pgtest.Server, string, int) {
	t.Helper()
	cert, key := ca.Issue(t, "server")
	server := pgtest.Own(t, pgtest.Options{
		TCP: true,
		Files: map[string]string{
			"server.crt": string(cert), "server.key": string(key), "ca.crt": string(ca.PEM),
			"pg_hba.conf": "local all all trust\nhostssl all certified 127.0.0.1/32 cert\nhostssl all worded 127.0.0.1/32 scram-sha-256\n",
		},
		Settings: []string{
			"ssl=on", "ssl_cert_file=../server.crt", "ssl_key_file=../server.key", "ssl_ca_file=../ca.crt", "hba_file=pg_hba.conf",
		},
	})
	err := server.Exec(t.Context(), "postgres", fmt.Sprintf(`CREATE ROLE certified LOGIN; CREATE ROLE worded LOGIN PASSWORD '%s';
CREATE ROLE services; GRANT services TO certified, worded; GRANT CREATE ON SCHEMA public TO certified, worded`, password))
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return server, host, n
}

// TestTLS: a server is verified to its name, clients prove themselves by certificate or by
// password, and no log line or error ever contains a password.
func TestTLS(t *testing.T) {
	ca, stranger := storetest.NewAuthority(t), storetest.NewAuthority(t)
	server, host, port := secured(t, ca)
	cert, key := ca.Issue(t, "certified")
	foreign, foreignKey := stranger.Issue(t, "certified")
	files := storetest.Files(t, map[string][]byte{
		"ca": ca.PEM, "stranger": stranger.PEM, "cert": cert, "key": key, "foreign": foreign, "foreign-key": foreignKey,
	})
	for _, name := range []string{"certified", "worded"} {
		if _, err := server.CreateDatabase(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := server.Exec(t.Context(), name, "GRANT CREATE ON SCHEMA public TO "+name); err != nil {
			t.Fatal(err)
		}
	}
	// A server of a test may lose what it acknowledged.
	address := func(user string, options ...string) string {
		database, _, _ := strings.Cut(user, ":")
		return fmt.Sprintf("postgres://%s@%s:%d/%s?nvsentinel_allow_unsafe=true&%s", user, host, port, database, strings.Join(options, "&"))
	}
	verified := func(ca string) string { return "sslmode=verify-full&sslrootcert=" + files[ca] }
	pair := func(cert, key string) string { return "sslcert=" + files[cert] + "&sslkey=" + files[key] }
	const pool = "pool_max_conns=3&pool_min_conns=1&pool_max_conn_lifetime=1m&pool_max_conn_idle_time=1m"
	worded := "worded:" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20")
	h := &storetest.Hearing{}
	dsns := []storetest.DSN{
		{Name: "client certificate", Address: address("certified", verified("ca"), pair("cert", "key"), pool), Opens: true},
		{Name: "password", Address: address(worded, verified("ca")), Opens: true},
		{Name: "no certificate", Address: address("certified", verified("ca"), pool)},
		{Name: "another authority's certificate", Address: address("certified", verified("ca"), pair("foreign", "foreign-key"), pool)},
		{Name: "somebody else's server", Address: address(worded, verified("stranger"))},
		{Name: "no TLS", Address: address(worded, "sslmode=disable")},
		{Name: "a wrong password", Address: address("worded:"+wrongPassword, verified("ca"))},
		{Name: "no password", Address: address("worded", verified("ca"))},
	}
	storetest.Try(t, h, dsns...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	open, err := storeopen.Open(ctx, address(worded, verified("ca")), storeopen.Options{Logger: h.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := server.Slay(); err != nil {
		t.Fatal(err)
	}
	h.Error(open.Ping(ctx))
	storetest.Try(t, h, storetest.DSN{Name: "a dead server", Address: address(worded, verified("ca"))})
	h.Silent(t, password, wrongPassword)
}
