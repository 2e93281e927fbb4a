package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Endpoint is where a plugin is and how it is spoken to.
type Endpoint struct {
	// Host is host:port or unix:///path.
	Host string
	// CallTimeout bounds every call.
	CallTimeout time.Duration
	// CAFile holds the authorities of the plugin's certificate as PEM; empty
	// means those of the system.
	CAFile string
	// CertFile and KeyFile are the janitor's certificate; empty shows none.
	CertFile, KeyFile string
	// ServerName is the name in the plugin's certificate; empty is Host's.
	ServerName string
	// TokenFile holds the token that goes with every call. Empty sends the pod's
	// own to a plugin on this host, if there is one, and none over a network; NoToken
	// sends none at all.
	TokenFile string
	// Plaintext speaks without TLS over a network. A Unix socket and a loopback
	// address are no network: they are spoken to in plain text unless CAFile is
	// set.
	Plaintext bool
}

// NoToken is a TokenFile that sends no token.
const NoToken = "none"

// ownToken is the pod's own token, which means the API server: a plugin that
// shares the pod has the same.
var ownToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// Validate joins everything that is wrong. Of the files it looks at none but the token's.
func (e Endpoint) Validate() error {
	var problems []error
	if e.Host == "" {
		problems = append(problems, errors.New("the host is empty"))
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		problems = append(problems, errors.New("certFile and keyFile must be set together"))
	}
	if e.Plaintext && (e.CAFile != "" || e.CertFile != "" || e.ServerName != "") {
		problems = append(problems, errors.New("plaintext excludes caFile, certFile and serverName"))
	}
	if e.Plaintext && e.token() != "" && !e.local() {
		problems = append(problems, fmt.Errorf("plaintext excludes tokenFile: a token is not sent to %s over a network in plain text. "+
			"Configure TLS in the plugin, set caFile (--csp-plugin-ca-file) and remove plaintext, or run the plugin in the janitor's Pod and use localhost:PORT or unix:///PATH, "+
			"or, if the plugin does not authenticate callers, set tokenFile (--csp-plugin-token-file) to %s", e.Host, NoToken))
	}
	if !e.local() && own(e.TokenFile) {
		problems = append(problems, fmt.Errorf("tokenFile %s is the Pod's token for the API server, which is not sent to %s over a network: "+
			"project a token with a separate audience, such as csp-plugin", e.TokenFile, e.Host))
	}
	return errors.Join(problems...)
}

// own reports whether a path leads to the pod's own token.
func own(path string) bool {
	token, err := os.Stat(ownToken)
	if err != nil {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && os.SameFile(token, info)
}

// local reports whether the plugin is on this host.
func (e Endpoint) local() bool {
	if strings.HasPrefix(e.Host, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(e.Host)
	if err != nil {
		host = e.Host
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// token is the file of the token to send, or empty.
func (e Endpoint) token() string {
	switch {
	case e.TokenFile == NoToken:
		return ""
	case e.TokenFile == "" && e.local():
		if _, err := os.Stat(ownToken); err == nil {
			return ownToken
		}
	}
	return e.TokenFile
}

// secure reports whether TLS is used.
func (e Endpoint) secure() bool {
	return !e.Plaintext && (!e.local() || e.CAFile != "" || e.CertFile != "")
}

// An idle connection is pinged as seldom as a server with gRPC's defaults requires; what
// was sent has to be acknowledged soon.
const (
	pingAfter = 5*time.Minute + 10*time.Second
	ackWithin = 20 * time.Second
)

// options are those of the connection.
func (e Endpoint) options() ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if e.secure() {
		c := reloading{endpoint: e}
		if _, err := c.config(); err != nil {
			return nil, err
		}
		transport = c
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(reconnect),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: ackWithin}),
		grpc.WithStatsHandler(sentTracker{}),
	}
	if token := e.token(); token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{file: token, secure: e.secure()}))
	}
	return options, nil
}

// bearer sends the token of a file, which is read for every call: the kubelet
// replaces it long before it runs out.
type bearer struct {
	file   string
	secure bool
}

// GetRequestMetadata is the token; without one the call is not made.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(b.file)
	if err != nil {
		return nil, fmt.Errorf("reading the token for the plugin: %w", err)
	}
	text := strings.TrimSpace(string(token))
	if text == "" {
		return nil, fmt.Errorf("reading the token for the plugin: %s is empty", b.file)
	}
	return map[string]string{"authorization": "Bearer " + text}, nil
}

// RequireTransportSecurity is true over a network.
func (b bearer) RequireTransportSecurity() bool { return b.secure }

// reloading is TLS whose files are read for every connection.
type reloading struct{ endpoint Endpoint }

// config reads the files.
func (r reloading) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.endpoint.ServerName}
	if file := r.endpoint.CAFile; file != "" {
		authorities, err := config.ReadAuthorities(file)
		if err != nil {
			return nil, fmt.Errorf("reading the CA certificates of the plugin: %w", err)
		}
		c.RootCAs = authorities
	}
	if r.endpoint.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(r.endpoint.CertFile, r.endpoint.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the janitor's certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// ClientHandshake uses the files as they are now.
func (r reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.config()
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	secured, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the plugin at %s probably serves without TLS: configure a certificate, or run it in the janitor's Pod and use localhost:PORT or unix:///PATH",
			err, r.endpoint.Host)
	}
	return secured, info, err
}

// ServerHandshake is not for clients.
func (reloading) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

// Info states that it is TLS.
func (r reloading) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.endpoint.ServerName}).Info()
}

// Clone is a copy.
func (r reloading) Clone() credentials.TransportCredentials { return r }

// OverrideServerName is deprecated; the endpoint has the name.
func (reloading) OverrideServerName(string) error { return errors.New("the endpoint names the server") }
