package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stmcginnis/gofish"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/internal/config"
)

const (
	// dialLimit bounds the making of a connection, and of TLS on it.
	dialLimit = 5 * time.Second
	// maxAnswer bounds the bytes of one answer of a BMC.
	maxAnswer = 4 << 20
)

// with calls do with a client that is logged in, and logs out afterwards.
func (d *Driver) with(ctx context.Context, machine string, do func(*gofish.APIClient, *line) error) error {
	b, known := d.bmcs[machine]
	if !known {
		return status.Errorf(codes.FailedPrecondition, "the plugin configuration has no [[bmc]] of %s", machine)
	}
	creds, err := bmc.ReadCredentials(b.Credentials)
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	l, err := newLine(b)
	if err != nil {
		return status.Error(codes.Aborted, err.Error())
	}
	defer l.transport.CloseIdleConnections()
	client, err := gofish.ConnectContext(ctx, gofish.ClientConfig{
		Endpoint: strings.TrimSuffix(b.Address, "/"), Username: creds.Username, Password: creds.Password, BasicAuth: !b.Session,
		HTTPClient: &http.Client{Transport: l, CheckRedirect: redirect}, NoModifyTransport: true, ReuseConnections: true,
	})
	if err != nil {
		return nothingSent(answered(err, true))
	}
	if b.Session {
		defer func() {
			fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialLimit)
			defer cancel()
			client.WithContext(fresh).Logout()
		}()
	}
	return do(client, l)
}

// redirect follows questions only: a signal goes to whom it was meant for, once.
func redirect(_ *http.Request, via []*http.Request) error {
	if via[0].Method != http.MethodGet || len(via) > 3 {
		return http.ErrUseLastResponse
	}
	return nil
}

// line is the connection to one BMC. It speaks to nobody else, whatever the BMC
// names in its links, and bounds what the BMC answers.
type line struct {
	transport *http.Transport
	host      string
	// sent: since it was cleared, there was a connection for a POST.
	sent atomic.Bool
}

func newLine(b BMC) (*line, error) {
	u, err := url.Parse(b.Address)
	if err != nil {
		return nil, fmt.Errorf("reading the address: %w", err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: b.ServerName}
	switch {
	case b.Pin != "":
		conf.InsecureSkipVerify = true // the pin replaces the verification
		conf.VerifyConnection = func(s tls.ConnectionState) error { return pinned(s, b.Pin) }
	case b.CAFile != "":
		authorities, err := config.ReadAuthorities(b.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading caFile: %w", err)
		}
		conf.RootCAs = authorities
	}
	dialer := &net.Dialer{Timeout: dialLimit}
	// No proxy of the environment, which would hear the password; no HTTP/2, which
	// repeats requests by itself.
	return &line{host: u.Host, transport: &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: conf, TLSHandshakeTimeout: dialLimit}}, nil
}

func pinned(s tls.ConnectionState, pin string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the BMC sent no certificate")
	}
	sum := sha256.Sum256(s.PeerCertificates[0].Raw)
	if got := hex.EncodeToString(sum[:]); !strings.EqualFold(got, pin) {
		return fmt.Errorf("the certificate of the BMC has the SHA-256 %s, and the pin is %s", got, strings.ToLower(pin))
	}
	return nil
}

// RoundTrip sends a request to the BMC.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != l.host || r.URL.Scheme != "https" {
		return nil, fmt.Errorf("the BMC at %s refers to %s://%s, which is not followed", l.host, r.URL.Scheme, r.URL.Host)
	}
	if r.Method == http.MethodPost {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { l.sent.Store(true) },
		}))
	}
	answer, err := l.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = bounded{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	return answer, nil
}

// bounded is a body of which so much is read at most.
type bounded struct {
	io.Reader
	io.Closer
}
