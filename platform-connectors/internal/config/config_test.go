package config

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/platform-connectors/authority"
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

func TestRoleCluster(t *testing.T) {
	c := Default()
	c.Role, c.Store = RoleCluster, "postgres://store/HealthEventsDatabase"
	c.Election.Enabled, c.Election.RenewDeadline = true, c.Election.Duration
	c.Kubernetes = false
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{"--kubernetes", "clusterWide", "renewDeadline"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s:\n%v", key, err)
		}
	}
	c.Election, c.Kubernetes = Default().Election, true
	c.Publishers.Agents = []authority.Agent{{Name: "w", Account: "system:serviceaccount:nvsentinel:w", ClusterWide: true}}
	if err := c.Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
}

func TestPublishers(t *testing.T) {
	c := good()
	c.Kubernetes = false
	c.Publishers = Publishers{Tokens: "required", VerdictLife: time.Hour, Agents: []authority.Agent{{}}}
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{"--publisher-tokens", "--publisher-token-audience", "--publisher-token-verdict-life", "agent[0].name"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s:\n%v", key, err)
		}
	}
	policy := good().Publishers.Policy("gpu-7")
	if policy.RequireToken || len(policy.Agents) != len(authority.DefaultAgents()) || len(policy.ClusterAgents()) != 0 {
		t.Errorf("the default: %+v", policy)
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
