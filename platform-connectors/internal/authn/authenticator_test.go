package authn

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
)

// server answers token reviews as configured and counts them.
type server struct {
	status   authenticationv1.TokenReviewStatus
	err      error
	requests int
}

func (s *server) review(t *testing.T, clock *clocktesting.FakePassiveClock) *Review {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.requests++
		return true, &authenticationv1.TokenReview{Status: s.status}, s.err
	})
	return NewReview(client.AuthenticationV1().TokenReviews(), Verification{Audience: "us", CacheTTL: time.Minute}, clock, prometheus.NewRegistry())
}

func valid() authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{"us"},
		User: authenticationv1.UserInfo{Username: "u", Extra: map[string]authenticationv1.ExtraValue{
			claimPod: {"p"}, claimNode: {"n"},
		}},
	}
}

func code(err error) codes.Code {
	if d, ok := errors.AsType[*Denied](err); ok {
		return d.Code
	}
	return codes.OK
}

func TestOnlyPositiveVerdictsAreRememberedAndNotForEver(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s := &server{status: authenticationv1.TokenReviewStatus{Error: "expired"}}
	v := s.review(t, clock)
	steps := []struct {
		what   string
		change func()
		want   codes.Code
		asked  int
	}{
		{"refused", func() {}, codes.Unauthenticated, 1},
		{"a refusal is not remembered", func() {}, codes.Unauthenticated, 2},
		{"away", func() { s.err = errors.New("connection refused") }, codes.Unavailable, 3},
		{"valid", func() { s.err, s.status = nil, valid() }, codes.OK, 4},
		{"remembered", func() { s.err = errors.New("connection refused") }, codes.OK, 4},
		{"to the end of its life", func() { clock.SetTime(clock.Now().Add(time.Minute - 1)) }, codes.OK, 4},
		{"and not beyond", func() { clock.SetTime(clock.Now().Add(2)) }, codes.Unavailable, 5},
		{"for another audience", func() { s.err, s.status.Audiences = nil, []string{"them"} }, codes.Unauthenticated, 6},
		{"by a server that knows no audiences", func() { s.status.Audiences = nil }, codes.Unauthenticated, 7},
	}
	for _, step := range steps {
		step.change()
		id, err := v.Identify(t.Context(), "token")
		if code(err) != step.want || s.requests != step.asked {
			t.Errorf("%s: %v after %d questions, want %s after %d", step.what, err, s.requests, step.want, step.asked)
		}
		if want := (Identity{"u", "p", "n"}); err == nil && id != want {
			t.Errorf("%s: %v, want %v", step.what, id, want)
		}
	}
	if _, err := v.Identify(t.Context(), strings.Repeat("x", maxToken+1)); code(err) != codes.Unauthenticated || s.requests != 7 {
		t.Errorf("an endless token: %v after %d questions", err, s.requests)
	}
}

func newAuthenticator(t *testing.T, tokens Tokens) *Authenticator {
	t.Helper()
	owners, err := OpenOwners(filepath.Join(t.TempDir(), "owners.json"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	auth := &Authenticator{Policy: authz.Policy{Node: "n"}, Tokens: tokens, Owners: owners}
	auth.Register(prometheus.NewRegistry())
	return auth
}

func TestAuthorizationHeader(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	tests := map[string]struct {
		values  []string
		off     bool
		want    codes.Code
		account string
	}{
		"none":              {},
		"a token":           {values: []string{"Bearer t"}, account: "u"},
		"in lower case":     {values: []string{"bearer  t "}, account: "u"},
		"twice":             {values: []string{"Bearer t", "Bearer t"}, want: codes.Unauthenticated},
		"empty":             {values: []string{"Bearer "}, want: codes.Unauthenticated},
		"another scheme":    {values: []string{"Basic dTpw"}, want: codes.Unauthenticated},
		"no scheme":         {values: []string{"t"}, want: codes.Unauthenticated},
		"ignored when off":  {values: []string{"Bearer t"}, off: true},
		"nonsense when off": {values: []string{"x", "y"}, off: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			auth := newAuthenticator(t, (&server{status: valid()}).review(t, clock))
			if tc.off {
				auth.Tokens = nil
			}
			md := metadata.MD{}
			md.Append("authorization", tc.values...)
			caller, wide, err := auth.Enter(metadata.NewIncomingContext(t.Context(), md))
			if code(err) != tc.want || caller.Account != tc.account || wide {
				t.Errorf("%v, wide %v, %v", caller, wide, err)
			}
		})
	}
}

func TestOwnersOutliveTheProcessAndDamage(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "owners.json")
	speak := func(agent string) error {
		t.Helper()
		owners, err := OpenOwners(path, log)
		if err != nil {
			t.Fatal(err)
		}
		return (&Authenticator{Owners: owners}).Speak(authz.Caller{}, []record.Event{{Agent: agent, CheckName: "X"}})
	}
	if err := speak("first"); err != nil {
		t.Fatal(err)
	}
	if err := speak("second"); code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `events[0]: check "X" belongs to agent "first"`) {
		t.Errorf("another agent: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"version":1,"checks":{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := speak("first"); err != nil {
		t.Errorf("after damage: %v", err)
	}
	if b, err := os.ReadFile(path + ".damaged"); err != nil || len(b) == 0 {
		t.Errorf("the damaged file: %q, %v", b, err)
	}
}

func TestUnstorableOwnersAreNotLearned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	owners, err := OpenOwners(filepath.Join(dir, "owners.json"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	auth := &Authenticator{Owners: owners}
	events := []record.Event{{Agent: "first", CheckName: "X"}}
	if err := auth.Speak(authz.Caller{}, events); code(err) != codes.Unavailable {
		t.Errorf("without a disk: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	events[0].Agent = "second" // the first got the answer that nothing was taken
	if err := auth.Speak(authz.Caller{}, events); err != nil {
		t.Errorf("with a disk: %v", err)
	}
}

// TestABatchIsLearnedWholeOrNotAtAll: a refused batch leaves no claims.
func TestABatchIsLearnedWholeOrNotAtAll(t *testing.T) {
	auth := newAuthenticator(t, nil)
	ctx := context.WithoutCancel(t.Context())
	if _, _, err := auth.Enter(ctx); err != nil {
		t.Fatal(err)
	}
	a := func(check string) record.Event { return record.Event{Agent: "a", CheckName: check} }
	b := func(check string) record.Event { return record.Event{Agent: "b", CheckName: check} }
	if err := auth.Speak(authz.Caller{}, []record.Event{a("X"), b("X")}); code(err) != codes.PermissionDenied {
		t.Errorf("two agents in one batch: %v", err)
	}
	if err := auth.Speak(authz.Caller{}, []record.Event{b("X")}); err != nil {
		t.Errorf("after a refused batch: %v", err)
	}
}
