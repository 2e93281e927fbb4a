// Package delivery sends one request over HTTP until the receiver has it: the same again
// after an answer that leaves hope, with growing pauses, for a bounded time.
package delivery

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cenkalti/backoff/v5"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/repair-steps/internal/redact"
)

// maxAnswer is how many bytes of an answer are kept.
const maxAnswer = 2 << 10

// Opener gives a body from its begin, once for each try.
type Opener func() (io.ReadCloser, error)

// Request is what is sent. Each try makes the same request.
type Request struct {
	Method string
	URL    config.Secret
	Header http.Header
	// Open gives the Length bytes of the body.
	Open   Opener
	Length int64
	// Conflict is what 409 Conflict means to the receiver.
	Conflict Outcome
}

// Answer is the last response of the receiver.
type Answer struct {
	Status string
	// Body is its begin, printable and without secrets.
	Body string
}

func (a Answer) String() string {
	if a.Body == "" {
		return "HTTP " + a.Status
	}
	return "HTTP " + a.Status + ": " + a.Body
}

// Sender sends.
type Sender struct {
	cfg    Config
	client *http.Client
	clock  clock.PassiveClock
	log    *slog.Logger
	// pauses between tries.
	pauses func() backoff.BackOff
}

// New prepares a sender; a file of authorities that can't be read is an error. No
// redirect is followed: nothing is sent where nobody configured it to go.
func New(c Config, clk clock.PassiveClock, log *slog.Logger) (*Sender, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		authorities, err := config.ReadAuthorities(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading caFile (--ca-file): %w", err)
		}
		transport.TLSClientConfig.RootCAs = authorities
	}
	return &Sender{cfg: c, clock: clk, log: log, pauses: pauses, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func pauses() backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = time.Second, 30*time.Second
	return b
}

// Send sends p until it is delivered or refused, or the time is over. The error is that
// of the last try.
func (s *Sender) Send(ctx context.Context, p Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SendTimeout)
	defer cancel()
	var last error
	answer, err := backoff.Retry(ctx, func() (Answer, error) {
		var a Answer
		a, last = s.try(ctx, p)
		return a, last
	}, backoff.WithBackOff(s.pauses()), backoff.WithMaxElapsedTime(s.cfg.SendTimeout),
		backoff.WithNotify(func(err error, pause time.Duration) {
			s.log.Warn("delivery failed, retrying", "error", err, "pause", pause.String())
		}))
	if err != nil && last != nil && ctx.Err() != nil {
		return answer, fmt.Errorf("sending timed out (%w): %w", context.Cause(ctx), last)
	}
	return answer, err
}

// try sends once. What needs no other try is a permanent error.
func (s *Sender) try(ctx context.Context, p Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.TryTimeout)
	defer cancel()
	req, err := s.request(ctx, p)
	if err != nil {
		return Answer{}, backoff.Permanent(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("sending to %s: %w", req.URL.Host, plain(err))
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status shows what was done
	a := Answer{Status: resp.Status, Body: printable(body)}
	switch Evaluate(resp.StatusCode, p.Conflict) {
	case Delivered:
		return a, nil
	case Again:
		err := fmt.Errorf("sending to %s: %s", req.URL.Host, a)
		if wish, _ := retry.After(resp.Header.Get("Retry-After"), s.clock.Now()); wish > 0 {
			return a, fmt.Errorf("%w (%w)", err, &backoff.RetryAfterError{Duration: min(wish, s.cfg.SendTimeout+time.Second)})
		}
		return a, err
	case Refused:
	}
	return a, backoff.Permanent(fmt.Errorf("sending to %s: rejected: %s", req.URL.Host, a))
}

// request makes the request of one try, with the token as it is now.
func (s *Sender) request(ctx context.Context, p Request) (*http.Request, error) {
	body, err := p.Open()
	if err != nil {
		return nil, fmt.Errorf("opening the content: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, p.Method, p.URL.Reveal(), body)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating the request: %w", plain(err)), body.Close())
	}
	req.ContentLength = p.Length
	maps.Copy(req.Header, p.Header)
	if s.cfg.TokenFile != "" {
		text, err := s.cfg.TokenFile.Read()
		token := strings.TrimSpace(text)
		if err == nil && token == "" {
			err = fmt.Errorf("%s is empty", s.cfg.TokenFile)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reading tokenFile (--token-file): %w", err), body.Close())
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// plain is an error without its URL, whose query may let anyone in.
func plain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// printable is an answer's body, fit for a line of a log. It may repeat what was sent.
func printable(body []byte) string {
	if len(body) == maxAnswer { // what was cut off in the middle may be half of a secret
		body = body[:bytes.LastIndexAny(body, " \t\n,")+1]
	}
	text := redact.Text(string(bytes.ToValidUTF8(body, []byte("?"))))
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text))
}

// Outcome is what becomes of a request after an answer.
type Outcome string

// Fates.
const (
	// Delivered: the receiver has it.
	Delivered Outcome = "Delivered"
	// Again: the same is sent again.
	Again Outcome = "Again"
	// Refused: sending it again changes nothing.
	Refused Outcome = "Refused"
)

// again are the statuses below 500 after which the same request may be taken.
var again = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// Evaluate returns what an HTTP status means for a request. conflict is what a 409 means to
// the receiver.
func Evaluate(status int, conflict Outcome) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Delivered
	case status == http.StatusConflict:
		return conflict
	case status >= 500, slices.Contains(again, status):
		return Again
	}
	return Refused
}
