package postgresql

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// Nothing crosses a network in clear text unless the address says so.
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
