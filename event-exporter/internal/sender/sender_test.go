package sender_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/sender"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func events(t *testing.T, n int) []event.Event {
	t.Helper()
	frame, err := cloudevent.NewFrame(map[string]string{"cluster": "c"})
	if err != nil {
		t.Fatal(err)
	}
	var out []event.Event
	for i := range n {
		e, err := frame.Of(testkit.Fault(fmt.Sprint("r", i)).Record())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func newSender(t *testing.T, o sender.Options) *sender.Sender {
	t.Helper()
	o.Connections, o.Mode = 2, sender.Structured
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	p, err := sender.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestResponses(t *testing.T) {
	end := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		// A connection that is closed with a request half read is reset.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		switch r.URL.Path {
		case "/wait":
			w.Header().Set("Retry-After", "17")
			http.Error(w, "not\x00 now \xff", http.StatusTooManyRequests)
		case "/away":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		case "/reset":
			panic(http.ErrAbortHandler)
		case "/hang":
			<-end
		}
	})
	t.Cleanup(func() { close(end) }) // before the server waits for its handlers
	for path, want := range map[string]sender.Result{
		"":       {Facts: cloudevent.Facts{Status: 200, Events: 1}, Detail: "HTTP 200 OK"},
		"/wait":  {Facts: cloudevent.Facts{Status: 429, Events: 1, RetryAfter: "17"}, Detail: "HTTP 429 Too Many Requests: not  now ?"},
		"/away":  {Facts: cloudevent.Facts{Status: 307, Events: 1}, Detail: "HTTP 307 Temporary Redirect"},
		"/reset": {Facts: cloudevent.Facts{Events: 1}, Detail: s.URL},
		"/hang":  {Facts: cloudevent.Facts{Events: 1}, Detail: s.URL},
	} {
		o := sender.Options{Endpoint: s.URL + path}
		if path == "/hang" {
			o.Timeout = 50 * time.Millisecond
		}
		got := newSender(t, o).Send(t.Context(), events(t, 1))
		if got.Facts != want.Facts || !strings.Contains(got.Detail, want.Detail) {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

// TestATokenOfAFile is read for every request.
func TestATokenOfAFile(t *testing.T) {
	var got atomic.Value
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(r.Header.Get("Authorization")) })
	file := filepath.Join(t.TempDir(), "token")
	p := newSender(t, sender.Options{Endpoint: s.URL, Credentials: sender.TokenFile(file)})
	if r := p.Send(t.Context(), events(t, 1)); !r.NoCredentials || !strings.Contains(r.Detail, "no such file") {
		t.Errorf("without a file: %+v", r)
	}
	for _, token := range []string{"one", "two"} {
		write(t, file, []byte(token+"\n"))
		if r := p.Send(t.Context(), events(t, 1)); r.Status != 200 || got.Load() != "Bearer "+token {
			t.Errorf("%+v with %q, want %q", r, got.Load(), token)
		}
	}
	write(t, file, []byte("\n"))
	if r := p.Send(t.Context(), events(t, 1)); !r.NoCredentials || !strings.Contains(r.Detail, "is empty") {
		t.Errorf("with an empty file: %+v", r)
	}
}

// authorizer is an OAuth2 token endpoint and a receiver that takes its tokens.
type authorizer struct {
	mu      sync.Mutex
	secret  string
	issued  int
	valid   string // the token that the receiver takes
	expires int
	away    bool
}

func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.URL.Path != "/token" {
		if r.Header.Get("Authorization") != "Bearer "+a.valid {
			w.WriteHeader(http.StatusUnauthorized)
		}
		return
	}
	_, password, _ := r.BasicAuth()
	switch {
	case a.away:
		http.Error(w, password, http.StatusServiceUnavailable)
	case r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" || password != a.secret:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s"}`, password)
	default:
		a.issued++
		a.valid = fmt.Sprint("t", a.issued)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"%s","token_type":"Bearer","expires_in":%d}`, a.valid, a.expires)
	}
}

func (a *authorizer) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *authorizer) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

// jumping is a clock that can be set forward.
type jumping struct {
	clock.RealClock
	ahead time.Duration
}

func (j *jumping) Now() time.Time { return j.RealClock.Now().Add(j.ahead) }

func TestClientCredentials(t *testing.T) {
	a := &authorizer{secret: "s1", expires: 3600}
	s := serve(t, a.ServeHTTP)
	file, now := filepath.Join(t.TempDir(), "secret"), &jumping{}
	write(t, file, []byte("wrong"))
	p := newSender(t, sender.Options{Endpoint: s.URL + "/events", Credentials: &sender.ClientCredentials{
		TokenURL: s.URL + "/token", ClientID: "id", SecretFile: config.SecretFile(file), Scopes: []string{"a", "b"}, Client: s.Client(), Clock: now,
	}})
	steps := []struct {
		name   string
		do     func()
		status int
		issued int
	}{
		{"a wrong secret", func() {}, 0, 0},
		{"the right one", func() { write(t, file, []byte("s1\n")) }, 200, 1},
		{"the same token again", func() {}, 200, 1},
		{"the receiver takes it no longer", func() { a.valid = "none" }, 200, 2},
		{"it runs out within a minute", func() { now.ahead = time.Hour - 59*time.Second }, 200, 3},
		{"a short-lived one", func() { now.ahead, a.valid, a.expires = 0, "none", 110 }, 200, 4},
		{"half of its time is over", func() { now.ahead, a.expires = 56*time.Second, 3600 }, 200, 5},
		{"the endpoint is away, the token good", func() { a.away = true }, 200, 5},
		{"the endpoint is away, the token refused", func() { a.valid = "none" }, 0, 5},
		{"it is back", func() { a.away, a.expires = false, 0 }, 200, 6},
		{"a token without an end", func() { now.ahead = 1000 * time.Hour }, 200, 6},
	}
	for _, step := range steps {
		a.set(step.do)
		r := p.Send(t.Context(), events(t, 1))
		if n := a.count(); r.Status != step.status || r.NoCredentials != (step.status == 0) || n != step.issued {
			t.Errorf("%s: %+v after %d tokens, want %d after %d", step.name, r, n, step.status, step.issued)
		}
		if strings.Contains(r.Detail, "s1") || strings.Contains(r.Detail, "wrong") {
			t.Errorf("%s: the detail tells the secret: %s", step.name, r.Detail)
		}
	}
	// A receiver that takes no token at all ends in its own answer, not in a loop.
	refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	p.Endpoint = refusing.URL
	if r := p.Send(t.Context(), events(t, 1)); r.Status != http.StatusUnauthorized || a.count() != 7 {
		t.Errorf("%+v after %d tokens", r, a.count())
	}
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key, a.pem = a.sign(template, nil)
	return a
}

func (a *authority) sign(template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, parentKey := template, key
	if by != nil {
		parent, parentKey = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair is a certificate of a name, as PEM.
func (a *authority) pair(name string) (cert, key []byte) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	_, private, cert := a.sign(template, a)
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TestMutualTLS: receiver and exporter verify each other, and both change their
// authority while the exporter runs.
func TestMutualTLS(t *testing.T) {
	dir := t.TempDir()
	files := sender.TLS{CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	one, two := newAuthority(t), newAuthority(t)
	var mu sync.Mutex
	trusted := one
	var peer atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		peer.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		pair, err := tls.X509KeyPair(trusted.pair("receiver"))
		pool := x509.NewCertPool()
		pool.AddCert(trusted.cert)
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}, err
	}}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	install := func(a *authority, name string) {
		cert, key := a.pair(name)
		write(t, files.CAFile, a.pem)
		write(t, files.CertFile, cert)
		write(t, files.KeyFile, key)
	}
	install(one, "first")
	p := newSender(t, sender.Options{Endpoint: s.URL, TLS: files})
	if r := p.Send(t.Context(), events(t, 1)); r.Status != 200 || peer.Load() != "first" {
		t.Fatalf("%+v from %q", r, peer.Load())
	}
	mu.Lock()
	trusted = two
	mu.Unlock()
	s.CloseClientConnections()
	// The exporter may learn of the closed connection only when it writes to it.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		r := p.Send(ctx, events(t, 1))
		if r.Status == 0 && strings.Contains(r.Detail, "x509") {
			break
		}
		if r.Status != 0 || ctx.Err() != nil {
			t.Fatalf("to a receiver of another authority: %+v", r)
		}
	}
	install(two, "second")
	if r := p.Send(t.Context(), events(t, 1)); r.Status != 200 || peer.Load() != "second" {
		t.Errorf("after the rotation: %+v from %q", r, peer.Load())
	}
	write(t, files.CAFile, []byte("no certificate"))
	if _, err := sender.New(sender.Options{Endpoint: s.URL, TLS: files}); err == nil || !strings.Contains(err.Error(), files.CAFile) {
		t.Errorf("a file without a certificate: %v", err)
	}
}
