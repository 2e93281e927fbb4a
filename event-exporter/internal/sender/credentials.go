package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/config"
)

// TokenFile is a static token in a file, which is read for every request, so
// that a replaced one is used at once.
type TokenFile config.SecretFile

// Token reads the file.
func (t TokenFile) Token(context.Context) (string, error) { return readSecret(config.SecretFile(t)) }

// Refused waits for another token in the file.
func (TokenFile) Refused(string) bool { return false }

// readSecret is a secret without blanks around it.
func readSecret(file config.SecretFile) (string, error) {
	text, err := file.Read()
	if err != nil {
		return "", fmt.Errorf("reading a secret: %w", err)
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("reading a secret: %s is empty", file)
	}
	return text, nil
}

// ClientCredentials are OAuth2 client credentials (RFC 6749, section 4.4).
type ClientCredentials struct {
	TokenURL, ClientID string
	// SecretFile is read for every token that is fetched.
	SecretFile config.SecretFile
	Scopes     []string
	// Client fetches the tokens.
	Client *http.Client
	Clock  clock.PassiveClock

	mu    sync.Mutex
	token string
	// until is when the token is replaced; zero is never.
	until time.Time
}

// early is how long before its end a token is replaced, or half of its life if
// that is shorter.
const early = time.Minute

// Token is the one at hand while it is good, else a new one.
func (c *ClientCredentials) Token(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && (c.until.IsZero() || c.Clock.Now().Before(c.until)) {
		return c.token, nil
	}
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return "", err
	}
	from := clientcredentials.Config{ClientID: c.ClientID, ClientSecret: secret, TokenURL: c.TokenURL, Scopes: c.Scopes}
	token, err := from.Token(context.WithValue(ctx, oauth2.HTTPClient, c.Client))
	if err != nil {
		return "", fmt.Errorf("fetching a token: %w", tokenError(err))
	}
	c.token, c.until = token.AccessToken, token.Expiry
	if !c.until.IsZero() {
		c.until = c.until.Add(-min(early, max(0, c.until.Sub(c.Clock.Now())/2)))
	}
	return c.token, nil
}

// Refused forgets the token, unless another has taken its place already.
func (c *ClientCredentials) Refused(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == token {
		c.token = ""
	}
	return true
}

// tokenError is an error without the body of the endpoint's answer, which may
// repeat what was sent.
func tokenError(err error) error {
	refusal, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return err
	}
	text := "the endpoint returned HTTP " + refusal.Response.Status
	if refusal.ErrorCode != "" {
		text += " (" + refusal.ErrorCode + ")"
	}
	return errors.New(text)
}

// TLS are the files by which receiver and exporter know each other. They are
// read for every connection, so a rotation needs no restart.
type TLS struct {
	// CAFile holds the authorities of the receiver's certificate, as PEM; empty
	// means those of the system.
	CAFile string
	// CertFile and KeyFile are the exporter's certificate; empty shows none.
	CertFile, KeyFile string
}

// config reads the files.
func (t TLS) config(serverName string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if t.CAFile != "" {
		authorities, err := config.ReadAuthorities(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA certificates of the receiver: %w", err)
		}
		c.RootCAs = authorities
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate of the exporter: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// dial connects with the files as they are now.
func (t TLS) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("parsing the endpoint: %w", err)
	}
	config, err := t.config(host)
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}, Config: config}
	return d.DialContext(ctx, network, address)
}
