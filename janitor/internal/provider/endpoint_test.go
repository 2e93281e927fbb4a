package provider_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert: cert, key: key}
}

// issue makes a certificate and its key as PEM.
func (a authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func write(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tokens notes the authorization of every call.
type tokens struct {
	v1.UnimplementedCSPPluginServiceServer
	received chan string
}

func (s *tokens) SendRebootSignal(ctx context.Context, _ *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	s.received <- strings.Join(md.Get("authorization"), ",")
	return &v1.SendRebootSignalResponse{RequestId: "r1"}, nil
}

// run serves impl on lis until the test ends.
func run(t *testing.T, lis net.Listener, impl v1.CSPPluginServiceServer, files *plugin.TLS) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- plugin.Serve(ctx, lis, impl, plugin.Options{Grace: time.Millisecond, TLS: files})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func connect(t *testing.T, e provider.Endpoint) *provider.Plugin {
	t.Helper()
	e.CallTimeout = 10 * time.Second
	p, err := provider.Dial(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// The certificates of both sides and the token, each replaced while the janitor
// runs: the next connection and the next call use the new ones.
func TestTLSAndTokenAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	first, second := newAuthority(t), newAuthority(t)
	serverCert, serverKey := second.issue(t, "plugin.test")
	impl := &tokens{received: make(chan string, 4)}
	lis := listen(t)
	files := &plugin.TLS{
		CertFile: write(t, dir, "plugin.crt", serverCert), KeyFile: write(t, dir, "plugin.key", serverKey),
		ClientCAFile: write(t, dir, "clients.crt", first.pem()),
	}
	run(t, lis, impl, files)
	cert, key := first.issue(t, "janitor")
	e := provider.Endpoint{
		Host: lis.Addr().String(), ServerName: "plugin.test",
		CAFile: write(t, dir, "ca.crt", first.pem()), CertFile: write(t, dir, "tls.crt", cert), KeyFile: write(t, dir, "tls.key", key),
		TokenFile: write(t, dir, "token", []byte("t1\n")),
	}
	p := connect(t, e)
	if _, err := p.Reboot(t.Context(), provider.Signal{Node: "n"}); delivery(t, err) != provider.NotSent || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("with the wrong authority: %v, want NotSent by an unknown authority", err)
	}
	// The janitor trusts the plugin now, but shows a certificate of an authority
	// that the plugin's new file does not hold. It may connect at any time, so
	// that file comes first.
	write(t, dir, "clients.crt", second.pem())
	write(t, dir, "ca.crt", second.pem())
	if _, err := p.Reboot(t.Context(), provider.Signal{Node: "n"}); err == nil {
		t.Error("the plugin took a caller of an authority that it trusts no more")
	}
	cert, key = second.issue(t, "janitor")
	write(t, dir, "tls.crt", cert)
	write(t, dir, "tls.key", key)
	await(t, "a connection under the new certificates", func() bool {
		_, err := p.Reboot(t.Context(), provider.Signal{Node: "n"})
		return err == nil
	})
	if got := <-impl.received; got != "Bearer t1" {
		t.Errorf("the plugin saw %q, want the token", got)
	}
	write(t, dir, "token", []byte("t2"))
	if _, err := p.Reboot(t.Context(), provider.Signal{Node: "n"}); err != nil {
		t.Fatal(err)
	}
	if got := <-impl.received; got != "Bearer t2" {
		t.Errorf("the plugin saw %q, want the new token", got)
	}
	if err := os.Remove(e.TokenFile); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Reboot(t.Context(), provider.Signal{Node: "n"}); delivery(t, err) != provider.NotSent || len(impl.received) != 0 {
		t.Errorf("without a token: %v, want NotSent", err)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("%s did not happen in time", what)
		case <-tick.C:
		}
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugin") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	impl := &tokens{received: make(chan string, 1)}
	run(t, lis, impl, nil)
	p := connect(t, provider.Endpoint{Host: "unix://" + filepath.Join(dir, "s"), TokenFile: write(t, t.TempDir(), "token", []byte("t"))})
	if id, err := p.Reboot(t.Context(), provider.Signal{Node: "n"}); err != nil || id != "r1" || <-impl.received != "Bearer t" {
		t.Errorf("reboot over a Unix socket: %q, %v", id, err)
	}
}

// Over a network TLS is spoken unless it was given up, and a token never goes
// in clear text.
func TestEndpointValidate(t *testing.T) {
	for _, tt := range []struct {
		e    provider.Endpoint
		want string
	}{
		{provider.Endpoint{Host: "plugin:1", TokenFile: "t"}, ""},
		{provider.Endpoint{Host: "plugin:1", Plaintext: true}, ""},
		{provider.Endpoint{Host: "127.0.0.1:1", Plaintext: true, TokenFile: "t"}, ""},
		{provider.Endpoint{Host: "unix:///s", TokenFile: "t"}, ""},
		{provider.Endpoint{Host: "plugin:1", CertFile: "c", KeyFile: "k", CAFile: "a"}, ""},
		{provider.Endpoint{}, "host is empty"},
		{provider.Endpoint{Host: "plugin:1", CertFile: "c"}, "must be set together"},
		{provider.Endpoint{Host: "plugin:1", Plaintext: true, CAFile: "a"}, "excludes caFile"},
		{provider.Endpoint{Host: "10.0.0.1:1", Plaintext: true, TokenFile: "t"}, "excludes tokenFile"},
		{provider.Endpoint{Host: "10.0.0.1:1", Plaintext: true, TokenFile: "t"}, "Configure TLS in the plugin, set caFile (--csp-plugin-ca-file)"},
		{provider.Endpoint{Host: "10.0.0.1:1", Plaintext: true, TokenFile: "t"}, "unix:///PATH"},
		{provider.Endpoint{Host: "10.0.0.1:1", Plaintext: true, TokenFile: provider.NoToken}, ""},
	} {
		err := tt.e.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.e, err, tt.want)
		}
	}
	for _, e := range []provider.Endpoint{{Host: "plugin:1", CAFile: "/none"}, {Host: "plugin:1", CertFile: "/none", KeyFile: "/none"}} {
		if _, err := provider.Dial(e); err == nil {
			t.Errorf("%+v: files that are not there were taken", e)
		}
	}
}

// A server without TLS gets nothing from a janitor that wants it.
func TestNetworkConnectionIsTLSByDefault(t *testing.T) {
	lis := listen(t)
	impl := &scripted{requests: make(chan *v1.SendRebootSignalRequest, 1)}
	run(t, lis, impl, nil)
	_, port, err := net.SplitHostPort(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// The name of the host is no loopback address, though it leads to one.
	p := connect(t, provider.Endpoint{Host: "passthrough:///127.0.0.1:" + port})
	_, err = p.Reboot(t.Context(), provider.Signal{Node: "n"})
	if delivery(t, err) != provider.NotSent || !strings.Contains(err.Error(), "probably serves without TLS: configure a certificate, or run it in the janitor's Pod") || len(impl.requests) != 0 {
		t.Errorf("a server without TLS: %v, want NotSent by TLS, and what to do", err)
	}
}

// A plugin on this host is shown the pod's own token unless another is set, so that
// one that reviews tokens without naming an audience works as it is; a plugin
// elsewhere is never shown it.
func TestThePodsOwnTokenIsForPluginsOnThisHost(t *testing.T) {
	dir := t.TempDir()
	provider.OwnToken(t, write(t, dir, "own", []byte("own")))
	lis := listen(t)
	impl := &tokens{received: make(chan string, 1)}
	run(t, lis, impl, nil)
	for _, tt := range []struct {
		file, want string
	}{
		{"", "Bearer own"},
		{write(t, dir, "other", []byte("other")), "Bearer other"},
		{provider.NoToken, ""},
	} {
		p := connect(t, provider.Endpoint{Host: lis.Addr().String(), TokenFile: tt.file})
		if _, err := p.Reboot(t.Context(), provider.Signal{Node: "n"}); err != nil {
			t.Fatal(err)
		}
		if got := <-impl.received; got != tt.want {
			t.Errorf("with token file %q the plugin saw %q, want %q", tt.file, got, tt.want)
		}
	}
	if err := (provider.Endpoint{Host: "10.0.0.1:1", Plaintext: true}).Validate(); err != nil {
		t.Errorf("a plugin elsewhere would be shown the pod's token: %v", err)
	}
	own, link := filepath.Join(dir, "own"), filepath.Join(dir, "link")
	if err := os.Symlink("own", link); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{own, link, "/proc/self/root" + own} {
		for _, host := range []string{"10.0.0.1:1", "plugin.example.com:1", "localhost.example.com:1", "dns:///localhost:1"} {
			err := provider.Endpoint{Host: host, TokenFile: file}.Validate()
			if err == nil || !strings.Contains(err.Error(), "tokenFile "+file+" is the Pod's token") {
				t.Errorf("the pod's token as %s for %s: %v, want it refused", file, host, err)
			}
		}
		if err := (provider.Endpoint{Host: "unix:///run/plugin", TokenFile: file}).Validate(); err != nil {
			t.Errorf("the pod's token as %s for a plugin on this host: %v", file, err)
		}
	}
}

// The error from a plugin that does not know its caller names the audience of the token
// that was sent.
func TestUnknownCallersSeeTheirAudience(t *testing.T) {
	lis := listen(t)
	run(t, lis, &scripted{code: codes.Unauthenticated, message: "invalid token"}, nil)
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":["csp-plugin"],"sub":"x"}`)) + ".c2ln"
	for file, want := range map[string]string{
		write(t, t.TempDir(), "token", []byte(token)): "invalid token (the token has the audience csp-plugin, which the plugin's TokenReview must name in spec.audiences",
		provider.NoToken: "invalid token (no token was sent: set tokenFile (--csp-plugin-token-file))",
		write(t, t.TempDir(), "opaque", []byte("opaque")): "invalid token",
	} {
		_, err := connect(t, provider.Endpoint{Host: lis.Addr().String(), TokenFile: file}).Reboot(t.Context(), provider.Signal{Node: "n"})
		if delivery(t, err) != provider.NotSent || !strings.Contains(err.Error(), want) {
			t.Errorf("refused: %v, want %q", err, want)
		}
	}
}

// What the watch knows of a plugin that is away, comes, declines and goes.
func TestHealth(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugin") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s") // nobody else can take it, as they could a port
	p := dial(t, "unix://"+path, 10*time.Second)
	if h := p.Health(t.Context()); h.Available || !strings.Contains(h.Detail, "no such file") {
		t.Errorf("nobody listens: %+v", h)
	}
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, state := grpc.NewServer(), health.NewServer()
	healthv1.RegisterHealthServer(server, state)
	impl := &scripted{requests: make(chan *v1.SendRebootSignalRequest, 1)}
	v1.RegisterCSPPluginServiceServer(server, impl)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-served })
	await(t, "the connection", func() bool { return p.Health(t.Context()).Available })

	state.SetServingStatus(v1.CSPPluginService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_NOT_SERVING)
	watch := provider.NewWatch(p, clock.RealClock{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watch.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	await(t, "the plugin's no", func() bool {
		ok, detail := watch.Ready()
		return ok && strings.Contains(detail, "is not available: its status is NOT_SERVING")
	})
	_, err = p.Reboot(t.Context(), provider.Signal{Node: "n"})
	if delivery(t, err) != provider.NotSent || len(impl.requests) != 0 {
		t.Errorf("a plugin that does not serve: %v, want NotSent without a call", err)
	}
	state.SetServingStatus(v1.CSPPluginService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	await(t, "the plugin's yes", func() bool {
		_, err := p.Reboot(t.Context(), provider.Signal{Node: "n"})
		return err == nil
	})
}

// A plugin without the health service is available while it can be reached.
func TestHealthOfABarePlugin(t *testing.T) {
	lis := listen(t)
	server := grpc.NewServer()
	v1.RegisterCSPPluginServiceServer(server, &scripted{code: codes.Internal})
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-served })
	p := dial(t, lis.Addr().String(), 10*time.Second)
	await(t, "a plugin without a health service to be available", func() bool { return p.Health(t.Context()).Available })
}
