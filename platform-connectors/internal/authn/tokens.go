package authn

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
)

// Bounds of the verification.
const (
	// reviewDeadline bounds one question to the API server; it is shorter than a
	// publisher's patience.
	reviewDeadline = 5 * time.Second
	// reviewsAtOnce bounds the questions in flight, so that a process of the
	// node cannot use the connector against the API server.
	reviewsAtOnce = 4
	// maxVerdicts bounds the cache, unless a Verification remembers more.
	maxVerdicts = 1024
	// maxToken is in bytes; no token is that long.
	maxToken = 16 << 10
)

// Claims of a token that is bound to a pod, as Kubernetes names them.
const (
	claimPod  = "authentication.kubernetes.io/pod-uid"
	claimNode = "authentication.kubernetes.io/node-name"
)

// Verification is what tokens are verified for.
type Verification struct {
	// Audience is the one a token must be for.
	Audience string
	// CacheTTL is how long a positive verdict is remembered.
	CacheTTL time.Duration
	// Refused is how long a refusal is; 0 remembers none.
	Refused time.Duration
	// AtOnce bounds the questions in flight, Remembered the verdicts that are
	// kept; 0 is a number for the publishers of one node.
	AtOnce, Remembered int
}

// Review verifies tokens with the API server's TokenReview. It remembers positive
// verdicts for CacheTTL, and refusals only if the Verification sets Refused. When the
// API server cannot be asked, nobody is admitted: the publisher keeps its events.
type Review struct {
	reviews nodeclient.TokenReviews
	Verification
	verdicts *cache.LRUExpireCache
	refused  *cache.LRUExpireCache
	slots    chan struct{}
	requests *prometheus.CounterVec
}

// Verdicts of a review, as label values.
const (
	verdictAccepted = "accepted"
	verdictRefused  = "refused"
	verdictUnknown  = "unknown"
	verdictCached   = "cached"
)

// NewReview makes a Review and registers its metrics. Without reviews it verifies
// nothing and refuses every token.
func NewReview(reviews nodeclient.TokenReviews, what Verification, c clock.PassiveClock, r prometheus.Registerer) *Review {
	verdicts, atOnce := max(what.Remembered, maxVerdicts), max(what.AtOnce, reviewsAtOnce)
	v := &Review{
		reviews: reviews, Verification: what,
		verdicts: cache.NewLRUExpireCacheWithClock(verdicts, c), refused: cache.NewLRUExpireCacheWithClock(verdicts, c),
		slots: make(chan struct{}, atOnce),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_token_reviews_total",
			Help: "Verifications of tokens, by result. For the result cached, the API server was not called again.",
		}, []string{"result"}),
	}
	for _, verdict := range []string{verdictAccepted, verdictRefused, verdictUnknown, verdictCached} {
		v.requests.WithLabelValues(verdict)
	}
	r.MustRegister(v.requests)
	return v
}

// Identify verifies a token. Its error is a *Denied: Unauthenticated for a token
// that is refused, Unavailable when the API server could not be asked.
func (v *Review) Identify(ctx context.Context, token string) (Identity, error) {
	if len(token) > maxToken {
		return Identity{}, denied(codes.Unauthenticated, reasonMalformed, "the token has %d bytes, the limit is %d", len(token), maxToken)
	}
	if v.reviews == nil {
		return Identity{}, denied(codes.Unauthenticated, reasonUnverified,
			"this connector runs without Kubernetes and cannot verify tokens: send none, or set publishers.tokens of the connector to off")
	}
	key := sha256.Sum256([]byte(token))
	if known, ok := v.verdicts.Get(key); ok {
		if id, ok := known.(Identity); ok {
			v.requests.WithLabelValues(verdictCached).Inc()
			return id, nil
		}
	}
	if problem, ok := v.refused.Get(key); ok && v.Refused > 0 {
		v.requests.WithLabelValues(verdictCached).Inc()
		return Identity{}, v.invalid(fmt.Sprint(problem))
	}
	status, err := v.createReview(ctx, token)
	if err != nil {
		v.requests.WithLabelValues(verdictUnknown).Inc()
		return Identity{}, denied(codes.Unavailable, reasonUnverified,
			"the API server did not review the token, nothing was accepted, retry the request: %v", err)
	}
	if !status.Authenticated || !slices.Contains(status.Audiences, v.Audience) {
		v.requests.WithLabelValues(verdictRefused).Inc()
		v.refused.Add(key, status.Error, v.Refused)
		return Identity{}, v.invalid(status.Error)
	}
	v.requests.WithLabelValues(verdictAccepted).Inc()
	id := Identity{Account: status.User.Username, Pod: claim(status, claimPod), Node: claim(status, claimNode)}
	v.verdicts.Add(key, id, v.CacheTTL)
	return id, nil
}

// Cached reports whether a token was found valid and need not be asked about.
func (v *Review) Cached(token string) bool {
	_, ok := v.verdicts.Get(sha256.Sum256([]byte(token)))
	return ok
}

func (v *Review) invalid(problem string) *Denied {
	return denied(codes.Unauthenticated, reasonInvalid,
		"the API server rejected the token for the audience %s: project a service account token with this audience, and read its file again for each request: %s",
		v.Audience, problem)
}

// createReview makes one review.
func (v *Review) createReview(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewDeadline)
	defer cancel()
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-ctx.Done():
		return authenticationv1.TokenReviewStatus{}, ctx.Err()
	}
	review, err := v.reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{v.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, err
	}
	return review.Status, nil
}

// claim is the single value of an extra attribute, or empty.
func claim(s authenticationv1.TokenReviewStatus, name string) string {
	if values := s.User.Extra[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}
