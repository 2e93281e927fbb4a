package postgresql_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const (
	// password has what an address has to escape.
	password = "s3cr3t/w:th@odd?ch#rs%41+ &é"
	// wrongWord is one that no user has.
	wrongWord = "wr0ngW0rd"
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

// TestTLS: a server is verified to its name, clients prove themselves by
// certificate or by password, and no log line or error ever tells a password.
func TestTLS(t *testing.T) {
	ca, stranger := storetest.NewAuthority(t), storetest.NewAuthority(t)
	server, host, port := secured(t, ca)
	cert, key := ca.Issue(t, "certified")
	foreign, foreignKey := stranger.Issue(t, "certified")
	files := storetest.Files(t, map[string][]byte{
		"ca": ca.PEM, "stranger": stranger.PEM, "cert": cert, "key": key, "foreign": foreign, "foreign-key": foreignKey,
		"password": []byte(password + "\n"), "wrong": []byte(wrongWord),
	})
	for _, name := range []string{"certified", "worded"} {
		if _, err := server.CreateDatabase(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := server.Exec(t.Context(), name, "GRANT CREATE ON SCHEMA public TO "+name); err != nil {
			t.Fatal(err)
		}
	}
	certified := func(edit func(*storeopen.Parts)) storeopen.Parts {
		p := storeopen.Parts{
			Provider: "postgresql", Host: host, Port: port, Database: "certified", User: "certified", SSLMode: "verify-full",
			CAFile: files["ca"], CertFile: files["cert"], KeyFile: files["key"], MaxConnections: 3, MinConnections: 1,
			ConnectionLifetime: time.Minute, IdleTime: time.Minute,
		}
		edit(&p)
		return p
	}
	worded := func(edit func(*storeopen.Parts)) storeopen.Parts {
		p := storeopen.Parts{Provider: "postgresql", Host: host, Port: port, Database: "worded", User: "worded", SSLMode: "verify-full", CAFile: files["ca"]}
		edit(&p)
		return p
	}
	address := fmt.Sprintf("postgres://worded@%s:%d/worded?nvsentinel_allow_unsafe=true&sslmode=verify-full&sslrootcert=%s", host, port, files["ca"])
	h := &storetest.Hearing{}
	dsns := []storetest.DSN{
		{Name: "client certificate", Parts: certified(func(*storeopen.Parts) {}), Opens: true},
		{Name: "password file", Parts: worded(func(p *storeopen.Parts) { p.PasswordFile = config.SecretFile(files["password"]) }), Opens: true},
		{Name: "password of the environment", Parts: worded(func(p *storeopen.Parts) { p.Password = config.NewSecret(password) }), Opens: true},
		{Name: "address and password file", Address: address, Parts: storeopen.Parts{PasswordFile: config.SecretFile(files["password"])}, Opens: true},
		{Name: "address and variables that say the same", Address: address, Parts: worded(func(p *storeopen.Parts) {
			p.Password, p.SSLMode, p.CAFile = config.NewSecret(password), "", ""
		}), Opens: true},
		{Name: "no certificate", Parts: certified(func(p *storeopen.Parts) { p.CertFile, p.KeyFile = "", "" })},
		{Name: "another authority's certificate", Parts: certified(func(p *storeopen.Parts) { p.CertFile, p.KeyFile = files["foreign"], files["foreign-key"] })},
		{Name: "somebody else's server", Parts: worded(func(p *storeopen.Parts) { p.Password, p.CAFile = config.NewSecret(password), files["stranger"] })},
		{Name: "no TLS", Parts: worded(func(p *storeopen.Parts) { p.Password, p.SSLMode, p.CAFile = config.NewSecret(password), "disable", "" })},
		{Name: "a wrong password", Parts: worded(func(p *storeopen.Parts) { p.PasswordFile = config.SecretFile(files["wrong"]) })},
		{Name: "no password", Parts: worded(func(*storeopen.Parts) {})},
	}
	for i := range dsns {
		if dsns[i].Address == "" {
			// A server of a test may lose what it acknowledged.
			dsns[i].Address = "postgres:///?nvsentinel_allow_unsafe=true"
		}
	}
	storetest.Try(t, h, dsns...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	open, err := storeopen.Open(ctx, address, storeopen.Options{Parts: storeopen.Parts{Password: config.NewSecret(password)}, Logger: h.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := server.Slay(); err != nil {
		t.Fatal(err)
	}
	h.Error(open.Ping(ctx))
	storetest.Try(t, h, storetest.DSN{Name: "a dead server", Address: address, Parts: storeopen.Parts{Password: config.NewSecret(password)}})
	h.Silent(t, password, wrongWord)
}
