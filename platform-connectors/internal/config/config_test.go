package config

import (
	"strings"
	"testing"
)

func good() Config {
	c := Default()
	c.NodeName, c.Store = "gpu-7", "postgres://store/HealthEventsDatabase"
	return c
}

func TestValidate(t *testing.T) {
	if err := good().Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	bad := Config{Role: "gateway", Socket: "relative", SpoolDir: "", SpoolMaxBytes: 1, Store: "sqlite:///x"}
	bad.Kube.QPS = -1
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{"--role", "--node-name", "--socket", "--spool-dir", "--spool-max-bytes", "--store", "kube-api-qps"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s:\n%v", key, err)
		}
	}
	single := good()
	single.Store, single.SingleHost = "sqlite:///x", true
	if err := single.Validate(); err != nil {
		t.Errorf("sqlite on a single host: %v", err)
	}
}

func TestMode(t *testing.T) {
	tests := map[string]struct {
		want Mode
		bad  bool
	}{
		"0660": {0o660, false}, "600": {0o600, false}, "0888": {0, true}, "01777": {0, true}, "rw": {0, true}, "": {0, true},
	}
	for text, tc := range tests {
		var m Mode
		if err := m.UnmarshalText([]byte(text)); (err != nil) != tc.bad || m != tc.want {
			t.Errorf("%q: %v, %v", text, m, err)
		}
	}
	if s := Mode(0o660).String(); s != "0660" {
		t.Errorf("String = %s", s)
	}
}
