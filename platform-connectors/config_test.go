package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func TestValidate(t *testing.T) {
	bad := Config{Role: "window", Shared: nodeconnector.Shared{HeapGrowth: 99}, Location: storeopen.Location{Store: config.NewSecret("sqlite:///x")}}
	bad.Kube.QPS = -1
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{"--role", "--gc-percent", "--store", "kube-api-qps"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s:\n%v", key, err)
		}
	}
	single := goodGateway()
	single.Store, single.SingleHost = config.NewSecret("sqlite:///x"), true
	if err := single.Validate(); err != nil {
		t.Errorf("sqlite on a single host: %v", err)
	}
}

// TestRoleNodeIsRemoved: the error of a start with it names what runs on nodes.
func TestRoleNodeIsRemoved(t *testing.T) {
	c := goodGateway()
	for role, message := range map[string]string{"node": "run node-connector on nodes, with --gateway", "": `role (--role) "" is not gateway or cluster`} {
		c.Role = role
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("role %q: %v", role, err)
		}
	}
}

func TestRoleCluster(t *testing.T) {
	c := defaultConfig()
	c.Role, c.Store = roleCluster, config.NewSecret("postgres://store/HealthEventsDatabase")
	c.Lease.Enabled, c.Lease.RenewDeadline = true, c.Lease.Duration
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
	c.Lease, c.Kubernetes = defaultConfig().Lease, true
	c.Publishers.Agents = []authz.Agent{{Name: "w", Account: "system:serviceaccount:nvsentinel:w", ClusterWide: true}}
	if err := c.Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
}

func TestPublishers(t *testing.T) {
	c := goodGateway()
	c.Kubernetes = false
	c.Publishers = nodeconnector.Publishers{Tokens: "required", TokenCacheTTL: time.Hour, Agents: []authz.Agent{{}}}
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{"--publisher-tokens", "--publisher-token-audience", "--publisher-token-cache-ttl", "agent[0].name"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s:\n%v", key, err)
		}
	}
	policy := goodGateway().Publishers.Policy("gpu-7")
	if policy.RequireToken || len(policy.Agents) != len(authz.DefaultAgents()) || len(policy.ClusterAgents()) != 0 {
		t.Errorf("the default: %+v", policy)
	}
}

func TestMode(t *testing.T) {
	tests := map[string]struct {
		want nodeconnector.Mode
		bad  bool
	}{
		"0660": {0o660, false}, "600": {0o600, false}, "0888": {0, true}, "01777": {0, true}, "rw": {0, true}, "": {0, true},
	}
	for text, tc := range tests {
		var m nodeconnector.Mode
		if err := m.UnmarshalText([]byte(text)); (err != nil) != tc.bad || m != tc.want {
			t.Errorf("%q: %v, %v", text, m, err)
		}
	}
	if s := nodeconnector.Mode(0o660).String(); s != "0660" {
		t.Errorf("String = %s", s)
	}
}

func TestRoleGateway(t *testing.T) {
	c := defaultConfig()
	c.Role, c.Store, c.Kubernetes = roleGateway, config.NewSecret("postgres://store/HealthEventsDatabase"), false
	c.Gateway = Gateway{Listen: "nowhere", TokenCacheTTL: time.Hour}
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, key := range []string{
		"--kubernetes", "--gateway-listen", "--gateway-cert-file", "--gateway-key-file", "--gateway-token-audience", "--gateway-accounts",
		"--gateway-token-cache-ttl", "--gateway-max-token-reviews", "--gateway-calls-per-node", "--gateway-bytes-per-second-per-node", "--gateway-max-in-flight-bytes", "--gateway-max-connections", "--gateway-connections-per-node", "--gateway-connections-per-address",
	} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s:\n%v", key, err)
		}
	}
	if err := goodGateway().Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
}

func goodGateway() Config {
	c := defaultConfig()
	c.Role, c.Store, c.Gateway.Accounts = roleGateway, config.NewSecret("postgres://store/HealthEventsDatabase"), []string{"system:serviceaccount:nvsentinel:platform-connectors"}
	return c
}

// TestInspectAddress: the store is read where this host or pod alone can come to.
func TestInspectAddress(t *testing.T) {
	for address, message := range map[string]string{
		"":                "",
		"127.0.0.1:9446":  "",
		"127.0.0.2:0":     "",
		"[::1]:9446":      "",
		"127.0.0.1":       "is not of the form host:port",
		":9446":           "requests there are not authenticated",
		"0.0.0.0:9446":    "requests there are not authenticated",
		"[::]:9446":       "requests there are not authenticated",
		"10.0.0.7:9446":   "requests there are not authenticated",
		"localhost:9446":  "requests there are not authenticated", // whatever it resolves to
		"127.0.0.1.a:446": "requests there are not authenticated",
	} {
		c := goodGateway()
		c.Gateway.InspectAddress = address
		if err := c.Validate(); (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%q: %v, want %q", address, err, message)
		}
	}
}
