package storeopen_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestAddress: parts alone, parts that complete an address, and what cannot be.
func TestAddress(t *testing.T) {
	word := filepath.Join(t.TempDir(), "word")
	if err := os.WriteFile(word, []byte("a b/c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, store string
		parts       storeopen.Parts
		want, fail  string
	}{
		{name: "an address alone", store: "sqlite:///x", want: "sqlite:///x"},
		{name: "postgresql", parts: storeopen.Parts{
			Provider: "postgresql", Host: "a,b:6432", Port: 5433, Database: "d", User: "u@x", Password: config.NewSecret("p+q"), SSLMode: "verify-full",
			CAFile: "/ca", CertFile: "/cert", KeyFile: "/key", MaxConnections: 7, MinConnections: 2, ConnectionLifetime: time.Hour, IdleTime: time.Minute,
		}, want: "postgres://u%40x:p%2Bq@a:5433,b:6432/d?sslmode=verify-full&sslrootcert=%2Fca&sslcert=%2Fcert&sslkey=%2Fkey" +
			"&pool_max_conns=7&pool_min_conns=2&pool_max_conn_lifetime=1h0m0s&pool_max_conn_idle_time=1m0s"},
		{name: "mongodb", parts: storeopen.Parts{
			Provider: "mongodb", Host: "a,b", Database: "d", CAFile: "/ca", CertFile: "/both", AuthMechanism: "MONGODB-X509", MaxConnections: 7, IdleTime: time.Minute,
		}, want: "mongodb://a,b/d?tls=true&tlsCAFile=%2Fca&tlsCertificateKeyFile=%2Fboth&authMechanism=MONGODB-X509&maxPoolSize=7&maxIdleTimeMS=60000"},
		{name: "a password file", store: "postgres://u@h/d", parts: storeopen.Parts{PasswordFile: config.SecretFile(word)}, want: "postgres://u:a%20b%2Fc@h/d"},
		{name: "a whole address of the environment", parts: storeopen.Parts{URI: config.NewSecret("mongodb://h:1,i:2/?replicaSet=r"), Database: "d"}, want: "mongodb://h:1,i:2/d?replicaSet=r"},
		{name: "the same twice", store: "postgres://u@h/d?sslmode=require", parts: storeopen.Parts{Provider: "postgresql", User: "u", SSLMode: "require"}, want: "postgres://u@h/d?sslmode=require"},
		{name: "another user", store: "postgres://u@h/d", parts: storeopen.Parts{User: "v"}, fail: "datastore.user (DATASTORE_USERNAME): the address says another one"},
		{name: "another option", store: "postgres://u@h/d?sslmode=disable", parts: storeopen.Parts{SSLMode: "verify-full"}, fail: "datastore.sslMode (DATASTORE_SSLMODE): the address has another sslmode"},
		{name: "another provider", store: "postgres://u@h/d", parts: storeopen.Parts{Provider: "mongodb"}, fail: `datastore.provider (DATASTORE_PROVIDER) is "mongodb", but the address is one of postgresql`},
		{name: "a typo of the provider", parts: storeopen.Parts{Provider: "postgres", Host: "h"}, fail: `"postgres" is unknown; known are postgresql and mongodb`},
		{name: "two addresses", store: "mongodb://h", parts: storeopen.Parts{URI: config.NewSecret("mongodb://i")}, fail: "give one"},
		{name: "two passwords", store: "mongodb://u@h", parts: storeopen.Parts{Password: config.NewSecret("p"), PasswordFile: config.SecretFile(word)}, fail: "give one"},
		{name: "no host", parts: storeopen.Parts{Provider: "mongodb"}, fail: "datastore.host (DATASTORE_HOST) is empty"},
		{name: "no such file", store: "mongodb://u@h", parts: storeopen.Parts{PasswordFile: "/absent"}, fail: "datastore.passwordFile: stat /absent"},
		{name: "sqlite has no connection", store: "sqlite:///x", parts: storeopen.Parts{MaxConnections: 3}, fail: "datastore.maxConnections"},
		{name: "a mechanism of mongodb", store: "postgres://h/d", parts: storeopen.Parts{AuthMechanism: "MONGODB-X509"}, fail: "datastore.authMechanism"},
		{name: "a lifetime of postgresql", store: "mongodb://h", parts: storeopen.Parts{ConnectionLifetime: time.Hour}, fail: "datastore.connectionLifetime"},
		{name: "an sslMode of postgresql", store: "mongodb://h", parts: storeopen.Parts{SSLMode: "prefer"}, fail: `datastore.sslMode (DATASTORE_SSLMODE) "prefer"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.parts.Address(tt.store)
			switch {
			case tt.fail == "" && (err != nil || got != tt.want):
				t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
			case tt.fail != "" && (err == nil || !strings.Contains(err.Error(), tt.fail)):
				t.Errorf("error %v, want one with %s", err, tt.fail)
			}
		})
	}
}

// TestTyposAreNamed: what is misspelt is said when the service starts, before
// anything is connected.
func TestTyposAreNamed(t *testing.T) {
	for store, want := range map[string]string{
		"postgres://u@h/d?sslmod=verify-full":       `"sslmod"`,
		"postgres://u@h/d?pool_max_con=3":           `"pool_max_con"`,
		"postgres://u@h/d?pool_max_conns=many":      "pool_max_conns",
		"postgres://u@h/d?pool_max_conns=1":         "pool_max_conns",
		"postgres://u@h/d?pool_max_conn_lifetime=3": "pool_max_conn_lifetime",
		"postgres://u@h/d?sslmode=verifyfull":       "sslmode",
		"mongodb://h/d?tlsCAFil=/ca":                `"tlscafil"`,
		"mongodb+srv://h/d?maxPoolSiz=3":            `"maxpoolsiz"`,
		"mongodb://h:1,i:2/d?authMechanism=MONGO":   "auth mechanism",
		"mongdb://h/d": "sqlite:///absolute/path.db, postgres://user@host/database, mongodb://host,host/database",
		"postgres://u@h/d?sslrootcert=/no/such/file": "/no/such/file",
	} {
		if err := storeopen.Check(store, storeopen.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", store, err, want)
		}
	}
	for _, store := range []string{
		"postgres://u@h/d?sslmode=require&pool_max_conns=20&application_name=x&statement_timeout=5000&connect_timeout=3&target_session_attrs=any",
		"mongodb://h:1,i:2/d?replicaSet=r&maxPoolSize=3&authMechanism=SCRAM-SHA-256&authSource=admin&tls=true", "mongodb+srv://h/d?maxPoolSize=3&srvMaxHosts=2",
	} {
		if err := storeopen.Check(strings.Replace(store, "mongodb://h", "mongodb://u:p@h", 1), storeopen.Options{}); err != nil {
			t.Errorf("%s: %v", store, err)
		}
	}
}

// TestNothingShowsThePassword: neither --help nor a printed configuration does.
func TestNothingShowsThePassword(t *testing.T) {
	const secret = "s3cr3t"
	var cfg struct {
		Store     config.Secret   `toml:"store" flag:"store" usage:"the address"`
		Datastore storeopen.Parts `toml:"datastore"`
	}
	var out bytes.Buffer
	flags := flag.NewFlagSet("svc", flag.ContinueOnError)
	flags.SetOutput(&out)
	set, err := config.Bind(flags, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"DATASTORE_PROVIDER": "postgresql", "DATASTORE_HOST": "h", "DATASTORE_USERNAME": "u", "DATASTORE_PASSWORD": secret}
	if err := set.Load("", func(name string) (string, bool) { v, ok := env[name]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	config.PrintUsage(flags)
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "%s\n%v\n%+v\n%#v\n%s", text, cfg, cfg, cfg, cfg.Datastore.Password)
	if strings.Contains(out.String(), secret) {
		t.Errorf("the password is shown:\n%s", out.String())
	}
	if address, err := cfg.Datastore.Address(cfg.Store.Reveal()); err != nil || address != "postgres://u:"+secret+"@h/" {
		t.Errorf("%s, %v: the password does not come through", address, err)
	}
}

// TestErrorsShowNoPassword: of an address that a driver refuses, nothing is shown that
// may be of the password, wherever its special characters have moved it; what is
// misspelt in an address that is certain is named.
func TestErrorsShowNoPassword(t *testing.T) {
	const secret, form = "pl4nted", "in user and password write %40 for @"
	for address, want := range map[string]string{
		"postgres://u:a/" + secret + "@h/d":                                                        form,
		"postgres://u:1?" + secret + "@h/d?sslmode=x":                                              form,
		"postgres://u:a?b@" + secret + "@h/d":                                                      form,
		"postgres://u:a@" + secret + "@h/d":                                                        form,
		"postgres://u:a " + secret + "@h/d":                                                        form,
		"postgres://u:%zz" + secret + "@h/d":                                                       form,
		"postgres://u:" + secret:                                                                   form,
		"mongodb://u:a/" + secret + "@h/d":                                                         form,
		"mongodb://u:a@" + secret + "@h/d":                                                         form,
		"mongodb://u:1?" + secret + "@h/d":                                                         form,
		"mongodb+srv://u:1?" + secret + "@h/d":                                                     form,
		"postgres://u:" + secret + "@h/d?sslmod=x":                                                 `unknown option "sslmod"`,
		"postgres://u:" + secret + "@h/d?sslmode=x":                                                "sslmode is invalid",
		"postgres://u@h/d?pool_max_conns=" + secret:                                                `its option pool_max_conns="..." is not a number`,
		"mongodb://u:" + secret + "@h/d?maxPoolSize=x":                                             `"maxPoolSize": "..."`,
		"mongodb://u:p@h/d?maxPoolSize=" + secret:                                                  `"maxPoolSize": "..."`,
		"postgres://u@h:" + secret + "/d":                                                          form,
		"postgres://u:p@h/d?password=" + secret + "&sslmode=no":                                    "sslmode is invalid",
		"postgres://u:p@h/d?sslpassword=" + secret + "&sslcert=/none&sslkey=/none":                 "/none",
		"postgres://u:p@h/d?sslmode=" + secret:                                                     "sslmode is invalid",
		"postgres://u:p@h/d?pool_max_conn_lifetime=" + secret:                                      `its option pool_max_conn_lifetime="..." is not a duration`,
		"postgres://u:p@h/d?connect_timeout=" + secret:                                             "connect_timeout",
		"mongodb://u:a:" + secret + "@h/d":                                                         form,
		"mongodb://u:%zz" + secret + "@h/d":                                                        form,
		"mongodb://u:p@h:" + secret + "/d":                                                         form,
		"mongodb://u:word@h/d?authMechanism=" + secret:                                             "auth",
		"mongodb://u:word@h/d?tlsCertificateKeyFile=/none&tlsCertificateKeyFilePassword=" + secret: "/none",
		"mongodb+srv://u:" + secret + "@h.example.com/d?nope=1":                                    `unknown option "nope"`,
		"sqlite:///" + secret:                                                                      "--single-host",
		"//" + secret:                                                                              "names no provider that is known",
		secret + "=x host=h":                                                                       "names no provider that is known",
		secret + "://h/d":                                                                          "names no provider that is known",
		"postgres://u:" + secret + "@h/d?sslrootcert=/x":                                           "open /x: no such file",
	} {
		err := storeopen.Check(address, storeopen.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q in it and no secret", address, err, want)
		}
	}
}
