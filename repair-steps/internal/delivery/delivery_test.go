package delivery

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/config"
)

func TestEvaluate(t *testing.T) {
	for outcome, statuses := range map[Outcome][]int{
		Delivered: {200, 201, 202, 204},
		Again:     {408, 425, 429, 500, 502, 503, 504, 507},
		Refused:   {100, 301, 302, 307, 308, 400, 401, 403, 404, 405, 409, 410, 411, 413, 415, 422},
	} {
		for _, status := range statuses {
			if got := Evaluate(status, Refused); got != outcome {
				t.Errorf("%d is %s, want %s", status, got, outcome)
			}
		}
	}
	for _, conflict := range []Outcome{Delivered, Again, Refused} {
		if got := Evaluate(409, conflict); got != conflict {
			t.Errorf("409 is %s, want %s", got, conflict)
		}
	}
}

// receiver answers one try after the other, and records its calls.
type receiver struct {
	answers []string // "503 Retry-After: 7", or "cut"
	at      []time.Duration
	begin   time.Time
	bodies  []string
	headers []http.Header
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.at, r.bodies, r.headers = append(r.at, time.Since(r.begin)), append(r.bodies, string(body)), append(r.headers, req.Header.Clone())
	answer := r.answers[min(len(r.at), len(r.answers))-1]
	if answer == "cut" {
		return nil, errors.New("connection reset")
	}
	if answer == "hang" {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	var status int
	_, _ = fmt.Sscan(answer, &status)
	header := http.Header{}
	if _, wish, ok := strings.Cut(answer, "Retry-After: "); ok {
		header.Set("Retry-After", wish)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: header, Body: io.NopCloser(strings.NewReader("said\x00 password=hunter2"))}, nil
}

func text(s string) Opener {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

// TestSend: what is tried again, when, and for how long.
func TestSend(t *testing.T) {
	for name, x := range map[string]struct {
		answers  []string
		conflict Outcome
		tries    int
		least    time.Duration // at which the last try is, at the earliest
		message  string        // the error; empty is none
	}{
		"at once":                        {[]string{"201"}, Refused, 1, 0, ""},
		"after failures":                 {[]string{"503", "cut", "500", "204"}, Refused, 4, 0, ""},
		"asked to wait":                  {[]string{"429 Retry-After: 40", "200"}, Refused, 2, 40 * time.Second, ""},
		"asked to wait for too long":     {[]string{"503 Retry-After: 3600", "200"}, Refused, 1, 0, "HTTP 503"},
		"asked to wait for an age":       {[]string{"503 Retry-After: 99999999999999999999", "200"}, Refused, 1, 0, "HTTP 503"},
		"refused":                        {[]string{"422", "200"}, Refused, 1, 0, "rejected: HTTP 422: said  password=[redacted]"},
		"a redirect":                     {[]string{"307", "200"}, Refused, 1, 0, "rejected: HTTP 307"},
		"a conflict":                     {[]string{"409", "200"}, Refused, 1, 0, "rejected: HTTP 409"},
		"a conflict that ends":           {[]string{"409", "200"}, Again, 2, 0, ""},
		"a conflict that says: have it":  {[]string{"cut", "409"}, Delivered, 2, 0, ""},
		"a receiver that says nothing":   {[]string{"hang", "hang", "200"}, Refused, 3, 20 * time.Second, ""},
		"a receiver that stays away":     {[]string{"cut"}, Refused, -1, 0, "connection reset"},
		"one that fails until the end":   {[]string{"500"}, Refused, -1, 0, "HTTP 500"},
		"one that hangs until the end":   {[]string{"hang"}, Refused, -1, 0, "deadline exceeded"},
		"the second try may be too late": {[]string{"503 Retry-After: 119", "200"}, Refused, 2, 119 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(Config{TryTimeout: 10 * time.Second, SendTimeout: 2 * time.Minute}, clock.RealClock{}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				r := &receiver{answers: x.answers, begin: time.Now()}
				c.client.Transport = r
				header := http.Header{"Idempotency-Key": {"run/step"}}
				a, err := c.Send(t.Context(), Request{Method: http.MethodPut, URL: config.NewSecret("https://example.com/x?sig=hunter2"), Open: text("the bytes"), Length: 9, Conflict: x.conflict, Header: header})
				if (err == nil) != (x.message == "") || err != nil && !strings.Contains(err.Error(), x.message) {
					t.Fatalf("%v, %v, want %q", a, err, x.message)
				}
				if err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("tells a secret: %v", err)
				}
				if x.tries >= 0 && len(r.at) != x.tries || len(r.at) < 2 && x.tries < 0 || r.at[len(r.at)-1] < x.least || time.Since(r.begin) > 2*time.Minute {
					t.Errorf("tries at %v, ended after %s", r.at, time.Since(r.begin))
				}
				for i := range r.bodies {
					if r.bodies[i] != "the bytes" || r.headers[i].Get("Idempotency-Key") != "run/step" {
						t.Errorf("try %d: %q, %v", i, r.bodies[i], r.headers[i])
					}
				}
			})
		})
	}
}

// TestTheTokenIsReadForEachTry.
func TestTheTokenIsReadForEachTry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" one \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{TryTimeout: time.Second, SendTimeout: time.Minute, TokenFile: config.SecretFile(file)}, clock.RealClock{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r := &receiver{answers: []string{"503", "200"}}
		c.client.Transport = r
		opened := 0
		open := func() (io.ReadCloser, error) {
			if opened++; opened == 2 {
				if err := os.WriteFile(file, []byte("two"), 0o600); err != nil {
					t.Error(err)
				}
			}
			return io.NopCloser(strings.NewReader("x")), nil
		}
		if _, err := c.Send(t.Context(), Request{Method: http.MethodPost, URL: config.NewSecret("https://example.com"), Open: open, Length: 1}); err != nil {
			t.Fatal(err)
		}
		if got := []string{r.headers[0].Get("Authorization"), r.headers[1].Get("Authorization")}; !slices.Equal(got, []string{"Bearer one", "Bearer two"}) {
			t.Errorf("%v", got)
		}
		if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Send(t.Context(), Request{Method: http.MethodPost, URL: config.NewSecret("https://example.com"), Open: text(""), Length: 0}); err == nil || !strings.Contains(err.Error(), "--token-file") || len(r.at) != 2 {
			t.Errorf("an empty token: %v, %d tries", err, len(r.at))
		}
	})
}

// TestAnswersAreBounded.
func TestAnswersAreBounded(t *testing.T) {
	if got := printable(bytes.Repeat([]byte("word "), maxAnswer/5+1)[:maxAnswer]); len(got) > maxAnswer || strings.HasSuffix(got, "wo") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-20:])
	}
}

func TestValidate(t *testing.T) {
	good := Config{TryTimeout: time.Second, SendTimeout: time.Second}
	for name, x := range map[string]struct {
		url     string
		token   config.SecretFile
		message string
		times   time.Duration
	}{
		"https":                {"https://example.com/a", "token", "", 1},
		"http":                 {"http://example.com/a", "", "", 1},
		"http with a token":    {"http://example.com/a", "token", "--token-file", 1},
		"no URL":               {"example.com/a", "", "--url", 1},
		"no host":              {"https:///a", "", "--url", 1},
		"another scheme":       {"ftp://example.com", "", "--url", 1},
		"a password in it":     {"https://u:p@example.com", "", "--url", 1},
		"broken":               {"https://[", "", "--url", 1},
		"no time":              {"https://example.com", "", "--try-timeout", 0},
		"a query":              {"https://example.com/a?sig=hunter2", "", "", 1},
		"http with a query":    {"http://example.com/a?sig=hunter2", "", "--url", 1},
		"a query to this host": {"http://127.0.0.1:1/a?sig=hunter2", "", "", 1},
		"a secret is not told": {"://user:hunter2@example.com", "", "--url", 1},
	} {
		c := good
		c.TokenFile = x.token
		c.TryTimeout *= x.times
		err := c.Validate(config.NewSecret(x.url), "url (--url)")
		if (err == nil) != (x.message == "") || err != nil && (!strings.Contains(err.Error(), x.message) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v, want %q", name, err, x.message)
		}
	}
	for url, message := range map[string]string{"https://example.com/hunter2": "", "http://example.com/hunter2": "is a reference", "http://localhost/hunter2": ""} {
		if err := good.Validate(referenced(t, url), "url (--url)"); (err == nil) != (message == "") || err != nil && (!strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("a reference to %s: %v, want %q", url, err, message)
		}
	}
	for _, file := range []string{"/nowhere", os.Args[0]} {
		if _, err := New(Config{CAFile: file}, clock.RealClock{}, nil); err == nil || !strings.Contains(err.Error(), "--ca-file") {
			t.Errorf("authorities in %s: %v", file, err)
		}
	}
}

// referenced is a secret that came by a reference.
func referenced(t *testing.T, text string) config.Secret {
	t.Helper()
	var c struct {
		URL config.Secret `toml:"url" flag:"url"`
	}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	set, err := config.Bind(flags, &c)
	if err == nil {
		err = flags.Parse([]string{"--url=${env:X}"})
	}
	if err == nil {
		err = set.Load("", func(string) (string, bool) { return text, true })
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.URL
}
