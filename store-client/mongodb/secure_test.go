package mongodb_test

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const (
	// password has what an address has to escape.
	password = "s3cr3t/w:th@odd?ch#rs%41+ &"
	// wrongWord is one that no user has.
	wrongWord = "wr0ngW0rd"
)

// secured is a server that lets nobody in without TLS and a client certificate
// of the authority, nor without a known user: the one of the certificate named
// certified, or worded by a password.
func secured(t *testing.T, ca *storetest.Authority, files map[string]string) *mongotest.Server {
	t.Helper()
	mongotest.Need(t)
	dir := t.TempDir()
	open, err := mongotest.Start(t.Context(), mongotest.Options{Dir: dir})
	if errors.Is(err, mongotest.ErrNone) {
		t.Skip(err) // a server by URI has users of its own
	}
	if err != nil {
		t.Fatal(err)
	}
	role := func(db string) bson.A {
		return bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: db}}}
	}
	for database, command := range map[string]bson.D{
		"admin": {{Key: "createUser", Value: "worded"}, {Key: "pwd", Value: password}, {Key: "roles", Value: role("worded")}},
		"$external": {
			{Key: "createUser", Value: "CN=certified"}, {Key: "mechanisms", Value: bson.A{"MONGODB-X509"}}, {Key: "roles", Value: role("certified")},
		},
	} {
		if err := open.Command(t.Context(), database, command); err != nil {
			t.Fatal(err)
		}
	}
	if err := open.Stop(); err != nil {
		t.Fatal(err)
	}
	server, err := mongotest.Start(t.Context(), mongotest.Options{
		Dir: dir,
		Flags: []string{
			"--auth", "--tls-cert-file", files["server"], "--tls-key-file", files["server-key"],
			"--tls-ca-file", files["ca"], "--tls-require-client-cert",
		},
		Query: fmt.Sprintf("&tls=true&tlsCAFile=%s&tlsCertificateFile=%s&tlsPrivateKeyFile=%s", files["ca"], files["cert"], files["key"]),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestTLS: a server is verified to its name, clients prove themselves by X.509
// or SCRAM, and no log line or error ever tells a password.
func TestTLS(t *testing.T) {
	mongotest.Need(t)
	ca, stranger := storetest.NewAuthority(t), storetest.NewAuthority(t)
	serverCert, serverKey := ca.Issue(t, "server")
	cert, key := ca.Issue(t, "certified")
	foreign, foreignKey := stranger.Issue(t, "certified")
	files := storetest.Files(t, map[string][]byte{
		"ca": ca.PEM, "stranger": stranger.PEM, "cert": cert, "key": key, "both": append(append([]byte{}, cert...), key...),
		"server": serverCert, "server-key": serverKey, "foreign": append(append([]byte{}, foreign...), foreignKey...),
		"password": []byte(password + "\n"), "wrong": []byte(wrongWord),
	})
	server := secured(t, ca, files)
	host, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	parts := func(database, mechanism string, edit func(*storeopen.Parts)) storeopen.Parts {
		p := storeopen.Parts{
			Provider: "mongodb", Host: host, Port: number, Database: database, AuthMechanism: mechanism, SSLMode: "verify-full",
			CAFile: files["ca"], CertFile: files["cert"], KeyFile: files["key"], MaxConnections: 8, MinConnections: 1, IdleTime: time.Minute,
		}
		edit(&p)
		return p
	}
	worded := func(edit func(*storeopen.Parts)) storeopen.Parts {
		return parts("worded", "SCRAM-SHA-256", func(p *storeopen.Parts) {
			p.User, p.AuthSource, p.PasswordFile = "worded", "admin", config.SecretFile(files["password"])
			edit(p)
		})
	}
	address := fmt.Sprintf("mongodb://worded@%s/worded?directConnection=true&tls=true&tlsCAFile=%s&tlsCertificateKeyFile=%s&authSource=admin",
		server.Addr(), files["ca"], files["both"])
	h := &storetest.Hearing{}
	dsns := []storetest.DSN{
		{Name: "X.509", Parts: parts("certified", "MONGODB-X509", func(*storeopen.Parts) {}), Opens: true},
		{Name: "X.509 by one file", Parts: parts("certified", "MONGODB-X509", func(p *storeopen.Parts) { p.CertFile, p.KeyFile = files["both"], "" }), Opens: true},
		{Name: "SCRAM", Parts: worded(func(*storeopen.Parts) {}), Opens: true},
		{Name: "address and password file", Address: address, Parts: storeopen.Parts{PasswordFile: config.SecretFile(files["password"])}, Opens: true},
		{Name: "no certificate", Parts: worded(func(p *storeopen.Parts) { p.CertFile, p.KeyFile = "", "" })},
		{Name: "another authority's certificate", Parts: worded(func(p *storeopen.Parts) { p.CertFile, p.KeyFile = files["foreign"], "" })},
		{Name: "somebody else's server", Parts: worded(func(p *storeopen.Parts) { p.CAFile = files["stranger"] })},
		{Name: "no TLS", Parts: worded(func(p *storeopen.Parts) { p.SSLMode, p.CAFile, p.CertFile, p.KeyFile = "disable", "", "", "" })},
		{Name: "a wrong password", Parts: worded(func(p *storeopen.Parts) { p.PasswordFile = config.SecretFile(files["wrong"]) })},
		{Name: "a user without a password", Parts: parts("worded", "", func(*storeopen.Parts) {})},
	}
	for i := range dsns {
		if dsns[i].Address == "" {
			dsns[i].Address = "mongodb:///?directConnection=true"
		}
	}
	storetest.Try(t, h, dsns...)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	storetest.Try(t, h, storetest.DSN{Name: "a dead server", Address: address, Parts: storeopen.Parts{Password: config.NewSecret(password)}})
	h.Silent(t, password, wrongWord)
}
