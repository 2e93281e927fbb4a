package gatewaytest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/freeport"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Connectors is the account of the connectors that a Gateway serves.
const Connectors = "system:serviceaccount:nvsentinel:platform-connectors"

// Options of a Gateway.
type Options struct {
	// DSN is the store's address. The gateway listens when the store is open.
	DSN string
	// Agents are publishers beside the built-in ones.
	Agents []authz.Agent
	// Publishers verifies the tokens of publishers; nil takes those of Token.
	Publishers nodeclient.TokenReviews
}

// Gateway is a gateway in the process of the test. It has the tokens of Token for the
// API server's, and serves until the test ends.
type Gateway struct {
	// Upstream is how the connector of the node that Open names reaches it.
	Upstream upstream.Config
}

// Open chooses the address of a gateway, and writes the files that the connector of a
// node needs. Nobody listens there before Serve.
func Open(t testing.TB, node string) *Gateway {
	t.Helper()
	port, err := freeport.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := Certificate(t)
	g := &Gateway{Upstream: upstream.Config{Address: fmt.Sprintf("127.0.0.1:%d", port), CAFile: cert, TokenFile: filepath.Join(t.TempDir(), "token")}}
	if err := os.WriteFile(g.Upstream.TokenFile, []byte(Token(gateway.Audience, Connectors, node)), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// Flags are those of a connector that goes through the gateway.
func (g *Gateway) Flags() []string {
	return []string{"--gateway=" + g.Upstream.Address, "--gateway-ca-file=" + g.Upstream.CAFile, "--gateway-token-file=" + g.Upstream.TokenFile}
}

// Serve serves from when the store can be opened until the test ends.
func (g *Gateway) Serve(t testing.TB, o Options) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- g.serve(ctx, o, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the gateway of the test: %v", err)
		}
	})
}

func (g *Gateway) serve(ctx context.Context, o Options, log *slog.Logger) error {
	opened, err := storeopen.Open(ctx, o.DSN, storeopen.Options{SingleHost: true, Logger: log})
	if err != nil {
		if ctx.Err() != nil {
			return nil // the test ends
		}
		return err
	}
	defer opened.Close()
	store, ok := opened.(gateway.Store)
	if !ok {
		return fmt.Errorf("the store cannot distinguish servers: it is a %T", opened)
	}
	if o.Publishers == nil {
		o.Publishers = Reviews{}
	}
	served := &gateway.Gateway{
		Callers: &gateway.Callers{
			Connectors: review(Reviews{}, gateway.Audience), Publishers: review(o.Publishers, authn.Audience), Accounts: []string{Connectors},
			Policy: forwardpolicy.Policy{Agents: append(authz.DefaultAgents(), o.Agents...)}, PerAddress: 100, Clock: clock.RealClock{},
		},
		Shares: &gateway.Shares{PerSecond: 64 << 20, Burst: 64 << 20, Clock: clock.RealClock{}},
		Store:  store, PerNode: 4, Memory: gateway.NewMemory(64 << 20), MaxCalls: gateway.MaxCalls,
		Clock: clock.RealClock{}, Log: log, Metrics: gateway.NewMetrics(prometheus.NewRegistry()),
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", g.Upstream.Address)
	if err != nil {
		return fmt.Errorf("listening for connectors: %w", err)
	}
	certificates := gateway.Certificates{Cert: g.Upstream.CAFile, Key: strings.TrimSuffix(g.Upstream.CAFile, "tls.crt") + "tls.key"}
	return gateway.Serve(ctx, l, served, certificates, gateway.Limits{Connections: 200, PerNode: 100, PerAddress: 100})
}

func review(reviews nodeclient.TokenReviews, audience string) *authn.Review {
	return authn.NewReview(reviews, authn.Verification{Audience: audience, CacheTTL: time.Minute, AtOnce: 16}, clock.RealClock{}, prometheus.NewRegistry())
}

// Token returns a token that consists of its claims; without a node it is bound to no pod.
func Token(audience, account, node string) string {
	return strings.TrimSuffix(audience+"~"+account+"~"+node, "~")
}

// Reviews plays the API server that made the tokens of Token. Asked is called for each
// question; nil is not.
type Reviews struct{ OnReview func() }

// Create implements nodeclient.TokenReviews.
func (r Reviews) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if r.OnReview != nil {
		r.OnReview()
	}
	review = review.DeepCopy()
	words := append(strings.Split(review.Spec.Token, "~"), "", "", "")
	if words[0] != review.Spec.Audiences[0] {
		review.Status.Error = "the token is expired, or for another audience"
		return review, nil
	}
	review.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: review.Spec.Audiences,
		User: authenticationv1.UserInfo{Username: words[1], Extra: map[string]authenticationv1.ExtraValue{}},
	}
	if words[2] != "" {
		review.Status.User.Extra["authentication.kubernetes.io/node-name"] = []string{words[2]}
		review.Status.User.Extra["authentication.kubernetes.io/pod-uid"] = []string{"uid-" + words[2]}
	}
	return review, nil
}
