package mongodb_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const (
	// password has what an address has to escape.
	password = "s3cr3t/w:th@odd?ch#rs%41+ &"
	// wrongPassword is one that no user has.
	wrongPassword = "wr0ngW0rd"
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

// TestTLS: a server is verified to its name, clients prove themselves by X.509 or SCRAM,
// and no log line or error ever contains a password.
func TestTLS(t *testing.T) {
	mongotest.Need(t)
	ca, stranger := storetest.NewAuthority(t), storetest.NewAuthority(t)
	serverCert, serverKey := ca.Issue(t, "server")
	cert, key := ca.Issue(t, "certified")
	foreign, foreignKey := stranger.Issue(t, "certified")
	files := storetest.Files(t, map[string][]byte{
		"ca": ca.PEM, "stranger": stranger.PEM, "cert": cert, "key": key, "both": append(append([]byte{}, cert...), key...),
		"server": serverCert, "server-key": serverKey, "foreign": append(append([]byte{}, foreign...), foreignKey...),
	})
	server := secured(t, ca, files)
	address := func(user, database string, options ...string) string {
		if user != "" {
			user += "@"
		}
		return fmt.Sprintf("mongodb://%s%s/%s?directConnection=true&%s", user, server.Addr(), database, strings.Join(options, "&"))
	}
	verified := func(ca string) string { return "tls=true&tlsCAFile=" + files[ca] }
	pair := func(cert, key string) string {
		return "tlsCertificateFile=" + files[cert] + "&tlsPrivateKeyFile=" + files[key]
	}
	both := func(file string) string { return "tlsCertificateKeyFile=" + files[file] }
	const pool = "maxPoolSize=8&minPoolSize=1&maxIdleTimeMS=60000"
	const x509, scram = "authMechanism=MONGODB-X509", "authMechanism=SCRAM-SHA-256&authSource=admin"
	worded := "worded:" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20")
	h := &storetest.Hearing{}
	dsns := []storetest.DSN{
		{Name: "X.509", Address: address("", "certified", x509, verified("ca"), pair("cert", "key"), pool), Opens: true},
		{Name: "X.509 by one file", Address: address("", "certified", x509, verified("ca"), both("both"), pool), Opens: true},
		{Name: "SCRAM", Address: address(worded, "worded", scram, verified("ca"), pair("cert", "key"), pool), Opens: true},
		{Name: "no mechanism", Address: address(worded, "worded", "authSource=admin", verified("ca"), both("both")), Opens: true},
		{Name: "no certificate", Address: address(worded, "worded", scram, verified("ca"))},
		{Name: "another authority's certificate", Address: address(worded, "worded", scram, verified("ca"), both("foreign"))},
		{Name: "somebody else's server", Address: address(worded, "worded", scram, verified("stranger"), pair("cert", "key"))},
		{Name: "no TLS", Address: address(worded, "worded", scram, "tls=false")},
		{Name: "a wrong password", Address: address("worded:"+wrongPassword, "worded", scram, verified("ca"), pair("cert", "key"))},
		{Name: "a user without a password", Address: address("", "worded", verified("ca"), pair("cert", "key"))},
	}
	storetest.Try(t, h, dsns...)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	storetest.Try(t, h, storetest.DSN{Name: "a dead server", Address: address(worded, "worded", scram, verified("ca"), pair("cert", "key"))})
	h.Silent(t, password, wrongPassword)
}
