// Package auth lets a plugin know its caller: it verifies the service-account
// token of every call with the API server (TokenReview) and admits exactly the
// identities that were named. It needs no Kubernetes library.
//
//	api, err := auth.InCluster()
//	...
//	check, err := auth.New(api, auth.Policy{Audience: "csp-plugin", Allowed: []string{"system:serviceaccount:nvsentinel:janitor"}})
//	err = plugin.ListenAndServe(ctx, ":9090", impl, plugin.Options{Server: check.ServerOptions()})
//
// It fails closed: what can not be verified is not admitted. Only the standard
// health service answers everybody.
package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// DefaultCacheFor is how long a token that was admitted is not reviewed again:
// so long a withdrawn token may still be admitted.
const DefaultCacheFor = 30 * time.Second

// reviewRetry is how long a caller waits whose token could not be reviewed.
const reviewRetry = 5 * time.Second

// Bounds of what callers can have the API server and this process do. Anybody who
// reaches the port can call.
const (
	// cached bounds the tokens that are remembered, admitted and refused ones each.
	cached = 1024
	// refusedFor is how long a refused token is refused without another review.
	refusedFor = 5 * time.Second
	// reviewsAtOnce bounds the reviews in flight of tokens that were never admitted.
	reviewsAtOnce = 4
	// slotWait is how long such a token waits for its review.
	slotWait = 5 * time.Second
	// maxToken is in bytes; no token is that long.
	maxToken = 16 << 10
)

// Review is what the API server reports about a token.
type Review struct {
	// Authenticated is true for a valid token; Username is its identity.
	Authenticated bool
	Username      string
	// Audiences are those asked for that the token is meant for.
	Audiences []string
	// Problem is why it is not valid.
	Problem string
}

// Reviewer asks the API server about a token. An error means that it could not
// be asked.
type Reviewer interface {
	Review(ctx context.Context, token, audience string) (Review, error)
}

// Policy defines who is admitted.
type Policy struct {
	// Audience the tokens must be meant for; required.
	Audience string
	// Allowed are the admitted identities, compared as a whole, for example
	// system:serviceaccount:nvsentinel:janitor; required.
	Allowed []string
	// CacheFor overrides DefaultCacheFor; negative remembers nothing, refused tokens
	// neither.
	CacheFor time.Duration
	// Now is the clock; nil is the system's.
	Now func() time.Time
}

// Check admits or refuses callers.
type Check struct {
	reviewer Reviewer
	policy   Policy

	slots chan struct{} // of reviews

	mu sync.Mutex
	// admitted holds until when a token is admitted, refused until when it is refused
	// and with what, by its hash.
	admitted map[hash]time.Time
	refused  map[hash]refusal
}

type hash = [sha256.Size]byte

type refusal struct {
	until time.Time
	err   error
}

// New makes a check. A policy that names no audience or nobody is an error: it
// would admit a token meant for somebody else, or no one.
func New(r Reviewer, p Policy) (*Check, error) {
	var problems []error
	if p.Audience == "" {
		problems = append(problems, errors.New("the audience is empty"))
	}
	if len(p.Allowed) == 0 || slices.Contains(p.Allowed, "") {
		problems = append(problems, errors.New("the allowed identities are empty"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("creating the authentication of callers: %w", err)
	}
	if p.CacheFor == 0 {
		p.CacheFor = DefaultCacheFor
	}
	if p.Now == nil {
		p.Now = time.Now //nolint:forbidigo // the default of an injected clock, in a module without a clock library
	}
	return &Check{
		reviewer: r, policy: p, slots: make(chan struct{}, reviewsAtOnce), admitted: map[hash]time.Time{}, refused: map[hash]refusal{},
	}, nil
}

// ServerOptions make a gRPC server admit only those whom the check admits, and
// everybody to the health service.
func (c *Check) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := c.call(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := c.call(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return handler(srv, stream)
		}),
	}
}

func (c *Check) call(ctx context.Context, method string) error {
	if strings.HasPrefix(method, "/grpc.health.v1.Health/") {
		return nil
	}
	return c.Admit(ctx)
}

// Admit checks the token in the metadata of a call. Its error is the answer to
// the caller: Unauthenticated without a valid token, PermissionDenied for
// another identity, Unavailable with RetryInfo when the API server can not be
// asked.
func (c *Check) Admit(ctx context.Context) error {
	token, err := bearer(ctx)
	if err != nil {
		return err
	}
	if len(token) > maxToken {
		return status.Errorf(codes.Unauthenticated, "the token has %d bytes, the limit is %d", len(token), maxToken)
	}
	sum := sha256.Sum256([]byte(token))
	known, before, refused := c.cached(sum)
	if known || refused != nil {
		return refused
	}
	// A token that was admitted before does not wait behind those of strangers.
	if !before {
		leave, err := c.enter(ctx)
		if err != nil {
			return notReviewed(err)
		}
		defer leave()
	}
	review, err := c.reviewer.Review(ctx, token, c.policy.Audience)
	if err != nil {
		return notReviewed(err)
	}
	verdict := c.evaluate(review)
	c.remember(sum, verdict)
	return verdict
}

// evaluate is the answer to a caller whose token was reviewed.
func (c *Check) evaluate(review Review) error {
	switch {
	case !review.Authenticated:
		return status.Error(codes.Unauthenticated, "the token is not valid: "+review.Problem)
	case !slices.Contains(review.Audiences, c.policy.Audience):
		return status.Errorf(codes.Unauthenticated, "the token is not meant for audience %q", c.policy.Audience)
	case !slices.Contains(c.policy.Allowed, review.Username):
		return status.Errorf(codes.PermissionDenied, "%q is not an allowed identity", review.Username)
	}
	return nil
}

// enter waits for one of the slots of reviews.
func (c *Check) enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, errors.New("too many concurrent token reviews, retry later")
	}
}

// bearer is the one token of a call.
func bearer(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return "", status.Errorf(codes.Unauthenticated, "the request has %d authorization entries, expected one", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", status.Error(codes.Unauthenticated, "the authorization is not a bearer token")
	}
	return token, nil
}

// notReviewed asks the caller to come again.
func notReviewed(err error) error {
	s := status.New(codes.Unavailable, "the token cannot be verified: "+err.Error())
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(reviewRetry)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// cached returns what is remembered of a token: that it is admitted, that it was
// admitted before, or the error with which it is refused.
func (c *Check) cached(sum hash) (admitted, before bool, refused error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.policy.Now()
	if r, ok := c.refused[sum]; ok && now.Before(r.until) {
		return false, false, r.err
	}
	until, before := c.admitted[sum]
	return before && now.Before(until), before, nil
}

// remember keeps what was found about a token; the old ones go when there are too
// many.
func (c *Check) remember(sum hash, verdict error) {
	if c.policy.CacheFor < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.policy.Now()
	if verdict != nil {
		delete(c.admitted, sum)
		expire(c.refused, func(r refusal) bool { return !now.Before(r.until) })
		if len(c.refused) < cached {
			c.refused[sum] = refusal{now.Add(refusedFor), verdict}
		}
		return
	}
	delete(c.refused, sum)
	expire(c.admitted, func(until time.Time) bool { return !now.Before(until) })
	if len(c.admitted) < cached {
		c.admitted[sum] = now.Add(c.policy.CacheFor)
	}
}

// expire drops what is over from a full map.
func expire[V any](m map[hash]V, over func(V) bool) {
	if len(m) >= cached {
		maps.DeleteFunc(m, func(_ hash, v V) bool { return over(v) })
	}
}
