package storeopen_test

import (
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestTyposAreNamed: a misspelled name is reported when the service starts, before it connects
// to anything.
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

// TestPartsAreRemoved: what named a store piece by piece ends the start and names the address.
func TestPartsAreRemoved(t *testing.T) {
	var l storeopen.Location
	for name, now := range l.FormerVariables() {
		if !strings.HasPrefix(name, "DATASTORE_") && !strings.HasPrefix(name, "MONGODB_") || !strings.Contains(now, "store (--store)") {
			t.Errorf("%s: %s", name, now)
		}
	}
	if !strings.Contains(l.FormerKeys()["datastore"], "store (--store)") || len(l.FormerVariables()) != 18 {
		t.Errorf("%v, %v", l.FormerKeys(), l.FormerVariables())
	}
}

// TestErrorsShowNoPassword: of an address that a driver refuses, nothing is shown that
// may be of the password, wherever its special characters have moved it; what is
// misspelt in an address that is certain is named.
func TestErrorsShowNoPassword(t *testing.T) {
	const secret, form = "pl4nted", "In user and password, write %40 for @"
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
		"//" + secret:                                                                              "has an unknown provider,",
		secret + "=x host=h":                                                                       "has an unknown provider,",
		secret + "://h/d":                                                                          "has an unknown provider,",
		"postgres://u:" + secret + "@h/d?sslrootcert=/x":                                           "open /x: no such file",
	} {
		err := storeopen.Check(address, storeopen.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q in it and no secret", address, err, want)
		}
	}
}
