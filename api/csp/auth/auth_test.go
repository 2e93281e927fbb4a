package auth_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/auth"
)

const (
	audience = "csp-plugin"
	janitor  = "system:serviceaccount:nvsentinel:janitor"
)

// desk answers reviews from a table and counts them.
type desk struct {
	reviews  map[string]auth.Review
	err      error
	requests int
}

func (d *desk) Review(_ context.Context, token, _ string) (auth.Review, error) {
	d.requests++
	return d.reviews[token], d.err
}

func calling(values ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.MD{"authorization": values})
}

func TestAdmit(t *testing.T) {
	d := &desk{reviews: map[string]auth.Review{
		"good":      {Authenticated: true, Username: janitor, Audiences: []string{audience}},
		"bad":       {Problem: "expired"},
		"elsewhere": {Authenticated: true, Username: janitor, Audiences: []string{"api"}},
		"plain":     {Authenticated: true, Username: janitor},
		"other":     {Authenticated: true, Username: janitor + "-2", Audiences: []string{audience}},
		"prefix":    {Authenticated: true, Username: "system:serviceaccount:nvsentinel:janito", Audiences: []string{audience}},
	}}
	check, err := auth.New(d, auth.Policy{Audience: audience, Allowed: []string{janitor}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		code    codes.Code
		message string
	}{
		{"good", calling("Bearer good"), codes.OK, ""},
		{"good, in small letters", calling("bearer good"), codes.OK, ""},
		{"no metadata", context.Background(), codes.Unauthenticated, "0 authorization entries"},
		{"two tokens", calling("Bearer good", "Bearer good"), codes.Unauthenticated, "2 authorization entries"},
		{"another scheme", calling("Basic good"), codes.Unauthenticated, "not a bearer token"},
		{"an empty token", calling("Bearer "), codes.Unauthenticated, "not a bearer token"},
		{"not valid", calling("Bearer bad"), codes.Unauthenticated, "expired"},
		{"unknown", calling("Bearer nobody"), codes.Unauthenticated, "not valid"},
		{"for another audience", calling("Bearer elsewhere"), codes.Unauthenticated, audience},
		{"for no audience", calling("Bearer plain"), codes.Unauthenticated, audience},
		{"a longer name", calling("Bearer other"), codes.PermissionDenied, janitor + "-2"},
		{"a shorter name", calling("Bearer prefix"), codes.PermissionDenied, "janito"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := check.Admit(tt.ctx)
			if status.Code(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.message) {
				t.Errorf("admitting: %v, want %s with %q", err, tt.code, tt.message)
			}
		})
	}
}

// A token that was admitted is asked about once in CacheFor, one that was refused
// once in five seconds; and an API server that can not be asked admits nobody.
func TestTokensAreRemembered(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := &desk{reviews: map[string]auth.Review{"good": {Authenticated: true, Username: janitor, Audiences: []string{audience}}}}
	check, err := auth.New(d, auth.Policy{Audience: audience, Allowed: []string{janitor}, CacheFor: time.Minute, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	asked := func(token string, want int, code codes.Code) {
		t.Helper()
		before := d.requests
		if err := check.Admit(calling("Bearer " + token)); status.Code(err) != code || d.requests-before != want {
			t.Errorf("%s: %v after %d reviews, want %s after %d", token, err, d.requests-before, code, want)
		}
	}
	asked("good", 1, codes.OK)
	d.err = errors.New("the API server is away")
	asked("good", 0, codes.OK)
	asked("bad", 1, codes.Unavailable)
	now = now.Add(time.Minute)
	asked("good", 1, codes.Unavailable)
	d.err = nil
	asked("bad", 1, codes.Unauthenticated)
	asked("bad", 0, codes.Unauthenticated)
	now = now.Add(5 * time.Second)
	asked("bad", 1, codes.Unauthenticated)
	asked("good", 1, codes.OK)
	d.reviews = nil // withdrawn
	asked("good", 0, codes.OK)
	now = now.Add(time.Minute)
	asked("good", 1, codes.Unauthenticated)
}

// busy holds every review of a stranger's token until it is released.
type busy struct {
	desk
	inside  chan struct{}
	release chan struct{}
}

func (b *busy) Review(_ context.Context, token, _ string) (auth.Review, error) {
	if token != "good" {
		b.inside <- struct{}{}
		<-b.release
	}
	return b.reviews[token], nil
}

// Strangers have the API server asked at most four times at once, and do not keep a
// caller waiting who was admitted before.
func TestStrangersAreReviewedFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{inside: make(chan struct{}, 100), release: make(chan struct{})}
		b.reviews = map[string]auth.Review{"good": {Authenticated: true, Username: janitor, Audiences: []string{audience}}}
		now := time.Unix(1000, 0)
		check, err := auth.New(b, auth.Policy{Audience: audience, Allowed: []string{janitor}, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		if err := check.Admit(calling("Bearer good")); err != nil {
			t.Fatal(err)
		}
		now = now.Add(auth.DefaultCacheFor + time.Second) // its next call needs a review
		answers := make(chan error, 100)
		for i := range 100 {
			go func() { answers <- check.Admit(calling(fmt.Sprint("Bearer stranger-", i))) }()
		}
		synctest.Wait()
		if n := len(b.inside); n != 4 {
			t.Errorf("%d reviews at once, want 4", n)
		}
		if err := check.Admit(calling("Bearer good")); err != nil {
			t.Errorf("a caller who was admitted before: %v", err)
		}
		want := func(n int, code codes.Code) {
			for range n {
				if err := <-answers; status.Code(err) != code {
					t.Errorf("a stranger: %v, want %s", err, code)
				}
			}
		}
		want(96, codes.Unavailable) // they give up, which is all that time passes for
		close(b.release)
		want(4, codes.Unauthenticated)
		if n := len(b.inside); n != 4 {
			t.Errorf("%d reviews in all, want 4", n)
		}
	})
}

// A token that no API server would give is not sent to one.
func TestLongTokensAreRefused(t *testing.T) {
	d := &desk{}
	check, err := auth.New(d, auth.Policy{Audience: audience, Allowed: []string{janitor}})
	if err != nil {
		t.Fatal(err)
	}
	if err := check.Admit(calling("Bearer " + strings.Repeat("x", 16<<10+1))); status.Code(err) != codes.Unauthenticated || d.requests != 0 {
		t.Errorf("%v after %d reviews, want it refused unasked", err, d.requests)
	}
}

func TestEmptyCallerIsInvalid(t *testing.T) {
	for _, p := range []auth.Policy{{}, {Audience: audience}, {Allowed: []string{janitor}}, {Audience: audience, Allowed: []string{""}}} {
		if _, err := auth.New(&desk{}, p); err == nil {
			t.Errorf("policy %+v was taken", p)
		}
	}
}

// The review over HTTP: the question, the plugin's own token read again, and
// every way it can go wrong.
func TestAPIServer(t *testing.T) {
	var answer atomic.Pointer[string]
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var question struct {
			Kind string
			Spec struct {
				Token     string
				Audiences []string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil || question.Kind != "TokenReview" || question.Spec.Token != "theirs" ||
			len(question.Spec.Audiences) != 1 || question.Spec.Audiences[0] != audience || r.Header.Get("Authorization") != "Bearer ours-2" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(*answer.Load()))
	}))
	t.Cleanup(server.Close)
	ca, token := files(t, server.Certificate())
	api, err := auth.NewAPIServer(server.URL, ca, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Review(t.Context(), "theirs", audience); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("with the wrong token of its own: %v, want 403", err)
	}
	if err := os.WriteFile(token, []byte("ours-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := `{"status":{"authenticated":true,"user":{"username":"u"},"audiences":["csp-plugin"]}}`
	answer.Store(&good)
	got, err := api.Review(t.Context(), "theirs", audience)
	if err != nil || !got.Authenticated || got.Username != "u" || len(got.Audiences) != 1 {
		t.Errorf("a good token: %+v, %v", got, err)
	}
	broken := `{"status":`
	answer.Store(&broken)
	if _, err := api.Review(t.Context(), "theirs", audience); err == nil {
		t.Error("a broken answer was taken")
	}
	server.Close()
	if _, err := api.Review(t.Context(), "theirs", audience); err == nil {
		t.Error("a server that is away was an answer")
	}
	if _, err := auth.NewAPIServer(server.URL, token, token); err == nil {
		t.Error("a file without certificates was taken")
	}
	if _, err := auth.NewAPIServer(server.URL, token+"-none", token); err == nil {
		t.Error("a missing file was taken")
	}
}

func files(t *testing.T, cert *x509.Certificate) (ca, token string) {
	t.Helper()
	dir := t.TempDir()
	ca, token = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	if err := errors.Join(os.WriteFile(ca, block, 0o600), os.WriteFile(token, []byte("ours-1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return ca, token
}
