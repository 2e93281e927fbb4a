package postgresql

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// Nothing crosses a network in clear text unless the address requests it.
func TestNetworksNeedTLS(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	for dsn, want := range map[string]struct{ clear, encrypted bool }{
		"postgres://u@db.example.com/d":                     {encrypted: true},
		"postgres://u@db-0,db-1/d":                          {encrypted: true},
		"postgres://u@10.0.0.1/d?pool_max_conns=3":          {encrypted: true},
		"postgres://u@localhost,db-1/d":                     {encrypted: true},
		"postgres://u@db.example.com/d?sslmode=disable":     {clear: true},
		"postgres://u@db.example.com/d?sslmode=prefer":      {clear: true},
		"postgres://u@db.example.com/d?sslmode=require":     {},
		"postgres://u@db.example.com/d?sslmode=verify-full": {},
		"postgres://u@127.0.0.1/d":                          {},
		"postgres://u@[::1]/d":                              {},
		"postgres://u@localhost/d":                          {},
		"postgres:///d?host=/run/postgresql":                {},
		"postgres://u@127.0.0.1/d?sslmode=disable":          {},
	} {
		p, err := parse(dsn)
		if err != nil {
			t.Fatalf("%s: %v", dsn, err)
		}
		if p.clear != want.clear || p.encrypted != want.encrypted {
			t.Errorf("%s: clear text admitted %v, TLS demanded %v; want %+v", dsn, p.clear, p.encrypted, want)
		}
		plain := p.conn.TLSConfig == nil && provider.OnNetwork(p.conn.Host)
		for _, f := range p.conn.Fallbacks {
			plain = plain || f.TLSConfig == nil && provider.OnNetwork(f.Host)
		}
		if plain != want.clear {
			t.Errorf("%s: a way without TLS is tried: %v", dsn, plain)
		}
		refused := p.hint(errors.New("server refused TLS connection"))
		if errors.Is(refused, provider.ErrUnusable) != want.encrypted || want.encrypted && !strings.Contains(refused.Error(), "sslmode=disable") {
			t.Errorf("%s: a server without TLS is told as %v", dsn, refused)
		}
	}
}

// A service keeps what it opens, and the settings of the address take precedence.
func TestLimits(t *testing.T) {
	const given = "postgres://u@localhost/d?pool_max_conns=20&pool_min_conns=3&pool_max_conn_lifetime=2h&pool_max_conn_idle_time=7s"
	for dsn, want := range map[string]struct{ service, few limits }{
		"postgres://u@localhost/d":                                    {limits{10, 10, time.Hour, 5 * time.Minute}, limits{4, 4, time.Hour, 5 * time.Minute}},
		"postgres://u@localhost/d?pool_max_conns=24":                  {limits{24, 24, time.Hour, 5 * time.Minute}, limits{4, 4, time.Hour, 5 * time.Minute}},
		"postgres://u@localhost/d?pool_max_conns=2&pool_min_conns=20": {limits{2, 2, time.Hour, 5 * time.Minute}, limits{2, 2, time.Hour, 5 * time.Minute}},
		given: {limits{20, 3, 2 * time.Hour, 7 * time.Second}, limits{4, 3, 2 * time.Hour, 7 * time.Second}},
	} {
		p, err := parse(dsn)
		if err != nil {
			t.Fatalf("%s: %v", dsn, err)
		}
		for of, got := range map[string][2]limits{"service": {p.limits.service(), want.service}, "few": {p.limits.few(), want.few}} {
			if got[0] != got[1] {
				t.Errorf("%s: %s: %+v, want %+v", dsn, of, got[0], got[1])
			}
		}
	}
}

// Processes that connect together replace their connections at different times, and none
// later than the configured lifetime.
func TestConnectionLifetimesDiffer(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		jittered := limits{lifetime: time.Hour}.connectionLifetime()
		if jittered < 45*time.Minute || jittered > time.Hour {
			t.Fatalf("a connection of one hour lives for %v", jittered)
		}
		seen[jittered] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 processes have only %d lives", len(seen))
	}
}
