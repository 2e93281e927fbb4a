package gateway

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
)

// Audience is the audience of the connectors' tokens for the gateway.
const Audience = "gateway.nvsentinel.nvidia.com"

// PublisherHeader bears the token of the publisher on whose behalf a connector
// calls.
const PublisherHeader = "nvsentinel-publisher-authorization"

// ResetHeader is set if somebody has ended faults of the connector's node since its last
// call: what it brings repeats nothing.
const ResetHeader = "nvsentinel-anew"

// Bounds of callers that nobody knows.
const (
	// firstPause is how long a peer has to wait after its first refused token;
	// it doubles up to longestPause.
	firstPause   = time.Second
	longestPause = time.Minute
	// maxPeers bounds how many peers' refusals are remembered.
	maxPeers = 16384
	// maxPendingReviews bounds the calls whose token is asked about, or waits for it.
	maxPendingReviews = MaxCalls / 2
)

// Tokens verifies tokens.
type Tokens interface {
	authn.Tokens
	// Cached reports whether a token need not be asked about.
	Cached(token string) bool
}

// Callers finds out who calls.
type Callers struct {
	// Connectors verifies the connectors' tokens, Publishers those of publishers.
	Connectors, Publishers Tokens
	// Accounts are those of the nodes' connectors.
	Accounts []string
	Policy   forwardpolicy.Policy
	// PerAddress bounds the calls of one address whose tokens are asked about, or wait
	// for it.
	PerAddress int
	Clock      clock.PassiveClock

	mu             sync.Mutex
	peers          map[string]*visitor
	pendingReviews int
}

// visitor is an address, or a node whose connection is known, whose tokens are asked
// about, or were refused.
type visitor struct {
	// turn is held while one of its tokens is asked about.
	turn chan struct{}
	// waiting counts who holds the turn or waits for it.
	waiting int
	// until is when its next token is looked at, pause the last wait.
	until time.Time
	pause time.Duration
}

// Enter identifies the caller. Its errors are for the caller.
func (c *Callers) Enter(ctx context.Context) (forwardpolicy.Caller, error) {
	id, err := c.identify(ctx, c.Connectors, "authorization", true)
	if err != nil {
		return forwardpolicy.Caller{}, err
	}
	allowed := false
	for _, account := range c.Accounts {
		allowed = allowed || account == id.Account
	}
	switch {
	case !allowed:
		return forwardpolicy.Caller{}, status.Errorf(codes.PermissionDenied, "%s is not an account of connectors: add it to gateway.accounts", id.Account)
	case id.Node == "" || id.Pod == "":
		return forwardpolicy.Caller{}, status.Error(codes.PermissionDenied, "the token is not bound to a Pod of a node: use a projected token")
	}
	caller := forwardpolicy.Caller{Node: id.Node}
	publisher, err := c.identify(ctx, c.Publishers, PublisherHeader, false)
	if err != nil {
		return forwardpolicy.Caller{}, err
	}
	if publisher.Account != "" {
		caller.Publisher = &authz.Caller{Account: publisher.Account, Pod: publisher.Pod, Node: publisher.Node}
	}
	if refusal := c.Policy.Enter(caller); refusal != nil {
		return forwardpolicy.Caller{}, status.Error(codes.PermissionDenied, refusal.Problem)
	}
	return caller, nil
}

// identify verifies the token in a header; without one it is nobody, unless it is
// required.
func (c *Callers) identify(ctx context.Context, tokens Tokens, header string, required bool) (authn.Identity, error) {
	token, given, err := authn.Bearer(ctx, header)
	if err != nil {
		return authn.Identity{}, callerError(err)
	}
	if !given {
		if required {
			return authn.Identity{}, status.Error(codes.Unauthenticated, "the token is missing: send the service account token of the connector Pod")
		}
		return authn.Identity{}, nil
	}
	if tokens.Cached(token) {
		id, err := tokens.Identify(ctx, token)
		return id, callerError(err)
	}
	from := origin(ctx)
	if err := c.begin(ctx, from); err != nil {
		return authn.Identity{}, err
	}
	id, err := tokens.Identify(ctx, token)
	c.end(from, err)
	return id, callerError(err)
}

// callerError returns an error in the form that the caller receives.
func callerError(err error) error {
	if err == nil {
		return nil
	}
	if denied, ok := asDenied(err); ok {
		return status.Error(denied.Code, denied.Problem)
	}
	return status.Error(codes.Unavailable, err.Error())
}

// errPaused is the answer to an address whose tokens were refused.
var errPaused = later(firstPause, "tokens from this address were rejected, retry after a pause")

// errTooManyReviews is the answer when too many calls wait for a verdict about their token.
var errTooManyReviews = later(firstPause, "too many tokens are waiting for verification, retry")

// begin waits until a token of an address may be asked about: one at a time, and
// after a refused one not at once. So a caller without a valid token causes few questions
// to the API server, and keeps no other address from its own.
func (c *Callers) begin(ctx context.Context, from string) error {
	c.mu.Lock()
	v := c.peers[from]
	if v == nil {
		c.forget()
		v = &visitor{turn: make(chan struct{}, 1)}
		c.peers[from] = v
	}
	switch {
	case c.Clock.Now().Before(v.until):
		c.mu.Unlock()
		return errPaused
	case v.waiting >= c.PerAddress || c.pendingReviews >= maxPendingReviews:
		c.mu.Unlock()
		return errTooManyReviews
	}
	v.waiting++
	c.pendingReviews++
	c.mu.Unlock()
	var err error
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.Clock.Now().Before(v.until) {
		<-v.turn
		err = errPaused
	}
	if err != nil {
		v.waiting--
		c.pendingReviews--
	}
	return err
}

// end notes what a question brought.
func (c *Callers) end(from string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.peers[from]
	v.waiting--
	c.pendingReviews--
	<-v.turn
	denied, ok := asDenied(err)
	if err == nil || !ok || denied.Code != codes.Unauthenticated {
		v.pause = 0
		return
	}
	v.pause = min(max(2*v.pause, firstPause), longestPause)
	v.until = c.Clock.Now().Add(v.pause)
}

// forget makes space for one more address: those that have nothing under way and
// whose pause is over, and if all are in a pause, any of them.
func (c *Callers) forget() {
	if c.peers == nil {
		c.peers = map[string]*visitor{}
	}
	if len(c.peers) < maxPeers {
		return
	}
	now := c.Clock.Now()
	for from, v := range c.peers {
		if v.waiting == 0 && now.After(v.until) {
			delete(c.peers, from)
		}
	}
	for from, v := range c.peers {
		if len(c.peers) < maxPeers {
			return
		}
		if v.waiting == 0 {
			delete(c.peers, from)
		}
	}
}

// origin is who is held responsible for a token that is refused.
func origin(ctx context.Context) string {
	if conn := connectionOf(ctx); conn != nil {
		return conn.origin()
	}
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}
