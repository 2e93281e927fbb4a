// Package authn authenticates the clients of the ingest endpoint, and keeps what was
// learned of them: the peer's credentials from the Unix socket, the service
// account from a projected token, and the owners of agents and checks. What
// that allows is decided by package authz.
package authn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
)

// Modes of tokens.
const (
	// TokensOff ignores tokens: every caller publishes events about its own node.
	TokensOff = "off"
	// TokensOptional checks a token that is given.
	TokensOptional = "optional"
	// TokensRequired refuses callers without one.
	TokensRequired = "required"
)

// Audience is the audience of tokens for a connector.
const Audience = "platform-connector.nvsentinel.nvidia.com"

// Identity is what a verified token proves.
type Identity struct {
	// Account is the user name; Pod and Node are of a token bound to a pod.
	Account, Pod, Node string
}

// Tokens verifies bearer tokens. Its errors are *Denied.
type Tokens interface {
	Identify(ctx context.Context, token string) (Identity, error)
}

// Reasons of denials that package authz does not know, as label values.
const (
	// reasonMalformed: the request has several `authorization` headers, or the header is not `Bearer <token>` with
	// a token of permitted length, so the request is refused. Action: check that the token file of the monitor is
	// not empty.
	reasonMalformed = "credentials-malformed"
	// reasonInvalid: the API server does not accept the token, for example because it has expired or has another
	// audience, so the request is refused. Action: project a service account token with the right audience
	// (`platform-connector.nvsentinel.nvidia.com` for a connector) into the pod of the caller.
	reasonInvalid = "token-invalid"
	// reasonUnverified: the API server could not be asked about the token, so the request is refused and sent
	// again later. A connector that runs without Kubernetes can verify no token at all. Action: none for a few
	// minutes. If it lasts, check the API server and the right of the service to create `tokenreviews`. Without
	// Kubernetes set `tokens = "off"` in `[publishers]`.
	reasonUnverified = "token-not-verifiable"
	// reasonOwners: the first owner of a check or an agent could not be written to `owners.json`, so the request
	// is refused and sent again later. Action: check the disk of `--wal-dir`.
	reasonOwners = "owners-not-stored"
)

// Reasons lists the label values of all denials.
func Reasons() []string {
	out := []string{reasonMalformed, reasonInvalid, reasonUnverified, reasonOwners}
	for _, r := range authz.Reasons() {
		out = append(out, string(r))
	}
	return out
}

// Denied is the error of a caller that may not enter or may not publish. Its
// text describes what to do.
type Denied struct {
	Code    codes.Code
	Reason  string
	Problem string
}

// Error is the problem and its remedy.
func (d *Denied) Error() string { return d.Problem }

func denied(code codes.Code, reason, format string, args ...any) *Denied {
	return &Denied{code, reason, fmt.Sprintf(format, args...)}
}

// byAuthority is the denial of a refusal.
func byAuthority(r *authz.Refusal) *Denied {
	code := codes.PermissionDenied
	if r.Reason == authz.NoToken {
		code = codes.Unauthenticated
	}
	return &Denied{code, string(r.Reason), r.Problem}
}

// Authenticator lets callers in and keeps the owners of names.
type Authenticator struct {
	Policy authz.Policy
	// Tokens is nil when tokens are ignored.
	Tokens Tokens
	Owners *OwnersFile

	callers *prometheus.CounterVec
}

// Scopes of callers, as label values.
const (
	scopeNode    = "node"
	scopeCluster = "cluster"
)

// Register makes the authenticator's metrics.
func (a *Authenticator) Register(r prometheus.Registerer) {
	a.callers = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nvsentinel_connector_batches_admitted_total",
		Help: "Batches of admitted callers, by token (whether the caller presented one) and by scope (node or cluster).",
	}, []string{"token", "scope"})
	for _, token := range []string{"true", "false"} {
		a.callers.WithLabelValues(token, scopeNode)
	}
	a.callers.WithLabelValues("true", scopeCluster)
	r.MustRegister(a.callers)
}

// Enter identifies the caller of a request. Wide is true if it publishes events about all
// nodes. The error is a *Denied.
func (a *Authenticator) Enter(ctx context.Context) (caller authz.Caller, wide bool, err error) {
	if p, ok := peer.FromContext(ctx); ok {
		if user, ok := p.AuthInfo.(User); ok {
			caller.UID = &user.UID
		}
	}
	if a.Tokens != nil {
		token, given, err := Bearer(ctx, "authorization")
		if err != nil {
			return caller, false, err
		}
		if given {
			id, err := a.Tokens.Identify(ctx, token)
			if err != nil {
				return caller, false, err
			}
			caller.Account, caller.Pod, caller.Node = id.Account, id.Pod, id.Node
		}
	}
	if refusal := a.Policy.Enter(caller); refusal != nil {
		return caller, false, byAuthority(refusal)
	}
	wide = a.Policy.ClusterWide(caller)
	scope := scopeNode
	if wide {
		scope = scopeCluster
	}
	a.callers.WithLabelValues(strconv.FormatBool(caller.Account != ""), scope).Inc()
	return caller, wide, nil
}

// Speak decides whether the caller may send the events. New owners are durable
// when it returns nil. The error is a *Denied.
func (a *Authenticator) Speak(caller authz.Caller, events []record.Event) error {
	return a.Owners.Change(func(l *authz.Owners) (learned bool, err error) {
		for i, e := range events {
			more, refusal := a.Policy.Speak(l, caller, e.Agent, e.CheckName)
			if refusal != nil {
				d := byAuthority(refusal)
				d.Problem = fmt.Sprintf("events[%d]: %s", i, d.Problem)
				return false, d
			}
			learned = learned || more
		}
		return learned, nil
	})
}

// SpeakEach decides for each event whether the caller may send it; nil is yes. New owners
// are durable when the error is nil, which is a *Denied.
func (a *Authenticator) SpeakEach(caller authz.Caller, events []record.Event) ([]*Denied, error) {
	out := make([]*Denied, len(events))
	err := a.Owners.Change(func(l *authz.Owners) (learned bool, err error) {
		for i, e := range events {
			more, refusal := a.Policy.Speak(l, caller, e.Agent, e.CheckName)
			if refusal != nil {
				out[i] = byAuthority(refusal)
			}
			learned = learned || more
		}
		return learned, nil
	})
	return out, err
}

// OfEvent reports whether the event alone is wrong: its publisher may send others, and it
// will be denied whenever it is sent.
func (d *Denied) OfEvent() bool { return d.Reason == string(authz.ForeignCheck) }

// Bearer is the token that a header of a request bears. The error is a *Denied.
func Bearer(ctx context.Context, header string) (token string, given bool, err error) {
	values := metadata.ValueFromIncomingContext(ctx, header)
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(values) > 1:
		return "", false, denied(codes.Unauthenticated, reasonMalformed, "the request has %d authorization headers: send exactly one", len(values))
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if token = strings.TrimSpace(token); !ok || !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", false, denied(codes.Unauthenticated, reasonMalformed,
			"the authorization header is not \"Bearer <token>\": check that the token file of the publisher is not empty")
	}
	return token, true, nil
}

// ownersVersion is the version of the file's shape.
const ownersVersion = 1

// OwnersFile keeps what was learned of agents and checks in a file. It is safe for
// concurrent use.
type OwnersFile struct {
	path string

	mu     sync.Mutex
	owners authz.Owners
}

// ownersDocument is the file's shape.
type ownersDocument struct {
	Version int `json:"version"`
	authz.Owners
}

// OpenOwners reads the file at path; without one nothing is known yet. A file
// that cannot be decoded is renamed, with an error in the log: names are
// learned again, and nothing is refused for it.
func OpenOwners(path string, log *slog.Logger) (*OwnersFile, error) {
	o := &OwnersFile{path: path}
	var file ownersDocument
	_, err := durable.Load(path, durable.Versions{Oldest: ownersVersion, Newest: ownersVersion}, &file)
	if err != nil && !errors.Is(err, durable.ErrDamaged) {
		return nil, err
	}
	if err != nil {
		log.Error("check owners unreadable, owners are recorded again", "file", path, "error", err)
		if err := os.Rename(path, path+".damaged"); err != nil {
			return nil, fmt.Errorf("moving the unreadable check owners to a backup file: %w", err)
		}
		return o, nil
	}
	o.owners = file.Owners
	return o, nil
}

// Change lets ask decide on the owners and note in them what it learns. What was
// learned is durable when Change returns nil; ask's error forgets it.
func (o *OwnersFile) Change(ask func(*authz.Owners) (learned bool, err error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := o.owners
	learned, err := ask(&next)
	if err != nil || !learned {
		return err
	}
	if _, err := durable.Save(o.path, ownersDocument{ownersVersion, next}); err != nil {
		return denied(codes.Unavailable, reasonOwners, "storing the owner of a new check failed, retry the request: %v", err)
	}
	o.owners = next
	return nil
}
