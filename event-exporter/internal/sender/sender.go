// Package sender sends CloudEvents to a receiver over HTTP and reports what came
// back; it decides nothing and repeats nothing, but for a token that the
// receiver no longer takes.
package sender

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
)

// Mode is the CloudEvents content mode of requests with one event.
type Mode string

// Modes (CloudEvents HTTP protocol binding 1.0, section 3). Requests with
// several events are always in the batched mode, which is JSON.
const (
	Structured Mode = "structured"
	Binary     Mode = "binary"
)

const (
	// detailBytes of an answer are kept for people.
	detailBytes = 512
	// drainBytes of an answer are read, so that its connection can be used again.
	drainBytes = 64 << 10
	// idleTimeout closes connections that nothing is sent on.
	idleTimeout = 90 * time.Second
)

// Credentials show a receiver who we are.
type Credentials interface {
	// Token for the next request.
	Token(ctx context.Context) (string, error)
	// Refused is called when the receiver does not take the token; again is whether
	// another one can be had at once.
	Refused(token string) (again bool)
}

// Options of a Sender.
type Options struct {
	Endpoint string
	Mode     Mode
	// Timeout bounds one request.
	Timeout time.Duration
	// Connections kept to the receiver.
	Connections int
	TLS         TLS
	// Credentials may be nil.
	Credentials Credentials
}

// Sender sends to one receiver. It is safe for concurrent use.
type Sender struct {
	Options
	client *http.Client
}

// New prepares a Sender; files of the TLS that cannot be read are an error.
func New(o Options) (*Sender, error) {
	client, err := NewClient(o.TLS, o.Connections)
	if err != nil {
		return nil, err
	}
	return &Sender{Options: o, client: client}, nil
}

// NewClient is an HTTP client that reads the TLS files for every connection. It
// follows no redirect: an event is not sent where nobody configured it to go.
func NewClient(t TLS, connections int) (*http.Client, error) {
	config, err := t.config("")
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		DialTLSContext:      t.dial,
		TLSClientConfig:     config, // behind a proxy
		MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections,
		IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: 10 * time.Second,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// Result is what came back.
type Result struct {
	cloudevent.Facts
	// Detail describes it.
	Detail string
}

// Send sends the events in one request; there is at least one.
func (s *Sender) Send(ctx context.Context, events []event.Event) Result {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if s.Credentials == nil {
		return s.send(ctx, events, "")
	}
	for tries := 1; ; tries++ {
		token, err := s.Credentials.Token(ctx)
		if err != nil {
			return Result{cloudevent.Facts{Events: len(events), NoCredentials: true}, err.Error()}
		}
		r := s.send(ctx, events, token)
		if r.Status != http.StatusUnauthorized || !s.Credentials.Refused(token) || tries > 1 {
			return r
		}
	}
}

func (s *Sender) send(ctx context.Context, events []event.Event, token string) Result {
	facts := cloudevent.Facts{Events: len(events)}
	req, err := s.request(ctx, events)
	if err != nil {
		facts.Unencodable = true
		return Result{facts, err.Error()}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return Result{facts, err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, drainBytes))
	facts.Status, facts.RetryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	detail := "HTTP " + resp.Status
	if text := printable(body); text != "" {
		detail += ": " + text
	}
	if err != nil {
		// The status stands: what the receiver did with the events is done.
		detail += fmt.Sprintf(" (reading the response: %v)", err)
	}
	return Result{facts, detail}
}

// request encodes the events.
func (s *Sender) request(ctx context.Context, events []event.Event) (*http.Request, error) {
	if len(events) > 1 {
		req, err := cehttp.NewHTTPRequestFromEvents(ctx, s.Endpoint, events)
		if err != nil {
			return nil, fmt.Errorf("encoding a batch: %w", err)
		}
		return req, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint, nil)
	if err != nil {
		return nil, fmt.Errorf("creating a request: %w", err)
	}
	how := binding.WithForceStructured(ctx)
	if s.Mode == Binary {
		how = binding.WithForceBinary(ctx)
	}
	if err := cehttp.WriteRequest(how, (*binding.EventMessage)(&events[0]), req); err != nil {
		return nil, fmt.Errorf("encoding an event: %w", err)
	}
	return req, nil
}

// printable is the beginning of an answer's body, fit for a line of a log.
func printable(body []byte) string {
	text := string(bytes.ToValidUTF8(body[:min(len(body), detailBytes)], []byte("?")))
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text))
}
