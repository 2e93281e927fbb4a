package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
)

// database is the suite's, and its account's name.
const database = "nvsentinel"

// admitted are those whom the server lets in: over the network with TLS and a password.
const admitted = `local   all all           trust
host    all all 127.0.0.1/32 trust
hostssl all all 0.0.0.0/0    scram-sha-256
`

// startStore starts a PostgreSQL that speaks TLS, and returns the address that pods use.
func startStore(ctx context.Context, dir string, cert localcluster.Certificate) (*pgtest.Server, string, error) {
	server, err := pgtest.Start(ctx, pgtest.Options{
		Dir: filepath.Join(dir, "postgresql"), Durable: true, TCP: true,
		Files:    map[string]string{"server.crt": string(cert.Cert), "server.key": string(cert.Key), "admitted.conf": admitted},
		Settings: []string{"listen_addresses=127.0.0.1," + address, "ssl=on", "ssl_cert_file=../server.crt", "ssl_key_file=../server.key", "hba_file=admitted.conf"},
	})
	if err != nil {
		return nil, "", err
	}
	const password = "s3cret"
	for _, statement := range []string{
		fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", database, password),
		fmt.Sprintf("CREATE DATABASE %s OWNER %[1]s", database),
	} {
		if err := server.Exec(ctx, "postgres", statement); err != nil {
			return nil, "", fmt.Errorf("preparing the store: %w", err)
		}
	}
	_, port, err := net.SplitHostPort(server.Addr())
	at := url.URL{Scheme: "postgres", User: url.UserPassword(database, password), Host: net.JoinHostPort(databaseName, port), Path: "/" + database}
	return server, at.String(), err
}
