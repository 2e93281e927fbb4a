// Package ticket makes the body of a ticket: JSON made from facts by a template.
package ticket

import (
	"bytes"
	_ "embed" // for the template
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/text"

	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/repair-steps/internal/delivery"
)

// maxBody is how many bytes a body may be allowed to have.
const maxBody = 4 << 20

// Conflict is what the receiver means by HTTP 409.
type Conflict string

// Meanings of 409 Conflict.
const (
	// Fail: the ticket is not taken.
	Fail Conflict = "fail"
	// Retry: a request with the same key is being worked on.
	Retry Conflict = "retry"
	// Exists: there is such a ticket already.
	Exists Conflict = "exists"
)

// outcomes are what follows.
var outcomes = map[Conflict]delivery.Outcome{Fail: delivery.Refused, Retry: delivery.Again, Exists: delivery.Delivered}

// Config of a ticket.
type Config struct {
	URL config.Secret `toml:"url" flag:"url" env:"TICKET_URL" usage:"URL of the ticket system, which receives a POST request. The environment variable TICKET_URL sets its default."`
	// Facts is a JSON object, the template's data.
	Facts    string `toml:"facts" flag:"facts" usage:"JSON file with the data of the ticket. Its keys are available in the template."`
	Template string `toml:"template" flag:"template" usage:"File with the Go template of the request body. Empty uses the built-in template."`
	MaxBody  int    `toml:"maxBodyBytes" bounds:"1 to 4194304 bytes" flag:"max-body-bytes" usage:"Maximum size of the request body in bytes."`
	// Header and Key let the receiver know a repetition.
	Header   string   `toml:"idempotencyHeader" flag:"idempotency-header" usage:"HTTP header that carries the idempotency key."`
	Key      string   `toml:"idempotencyKey" flag:"idempotency-key" env:"TICKET_KEY" usage:"Idempotency key of this ticket, identical for every retry, for example RUN/STEP. The environment variable TICKET_KEY sets its default."`
	Conflict Conflict `toml:"onConflict" bounds:"fail, retry, exists" flag:"on-conflict" usage:"Meaning of an HTTP 409 response: fail, retry (a request with this key is in progress) or exists (the ticket exists already)."`

	Sending delivery.Config `toml:"sending"`
}

// Default tries for five minutes.
func Default() Config {
	return Config{
		Facts: "/etc/ticket/facts.json", MaxBody: 64 << 10, Header: "Idempotency-Key", Conflict: Fail,
		Sending: delivery.Config{TryTimeout: 30 * time.Second, SendTimeout: 5 * time.Minute},
	}
}

var (
	tokens = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$") // RFC 9110, section 5.6.2
	keys   = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)
)

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var problems []error
	if c.URL.IsZero() {
		problems = append(problems, errors.New("url (--url) is missing: set the URL of the ticket system"))
	} else {
		problems = append(problems, c.Sending.Validate(c.URL, "url (--url)"))
	}
	if c.Facts == "" {
		problems = append(problems, errors.New("facts (--facts) is missing: set a file with a JSON object"))
	}
	if c.MaxBody < 1 || c.MaxBody > maxBody {
		problems = append(problems, fmt.Errorf("maxBodyBytes (--max-body-bytes) is %d, it must be from 1 to %d", c.MaxBody, maxBody))
	}
	name := http.CanonicalHeaderKey(c.Header)
	if !tokens.MatchString(c.Header) || name == "Authorization" || strings.HasPrefix(name, "Content-") || name == "Host" {
		problems = append(problems, fmt.Errorf("idempotencyHeader (--idempotency-header) is %q, it must be the name of a header such as Idempotency-Key", c.Header))
	}
	if !keys.MatchString(c.Key) {
		problems = append(problems, fmt.Errorf("idempotencyKey (--idempotency-key) is %q, it must be 1 to 255 printable characters without blanks, the same for each retry", c.Key))
	}
	if outcomes[c.Conflict] == "" {
		problems = append(problems, fmt.Errorf("onConflict (--on-conflict) is %q, it must be fail, retry or exists", c.Conflict))
	}
	return errors.Join(problems...)
}

// Request is the ticket with its body.
func (c Config) Request(open delivery.Opener, length int64) delivery.Request {
	return delivery.Request{
		Method: http.MethodPost, URL: c.URL, Open: open, Length: length, Conflict: outcomes[c.Conflict],
		Header: http.Header{"Content-Type": {"application/json"}, http.CanonicalHeaderKey(c.Header): {c.Key}},
	}
}

// most is how many bytes the files of the facts and of the template have at most.
const most = 256 << 10

//go:embed default.json.tmpl
var builtIn string

// Write makes the body of the configuration's files: of the same files the same body.
func Write(c Config) ([]byte, error) {
	text, err := read(c.Facts)
	if err != nil {
		return nil, fmt.Errorf("reading facts (--facts): %w", err)
	}
	facts := map[string]any{}
	from := json.NewDecoder(bytes.NewReader(text))
	from.UseNumber()
	err = from.Decode(&facts)
	if err == nil && from.More() {
		err = errors.New("unexpected data after the object")
	}
	if err != nil {
		return nil, fmt.Errorf("reading facts (--facts): %s is not a JSON object: %w", c.Facts, err)
	}
	how := builtIn
	if c.Template != "" {
		text, err := read(c.Template)
		if err != nil {
			return nil, fmt.Errorf("reading template (--template): %w", err)
		}
		how = string(text)
	}
	return render(how, facts, c.MaxBody)
}

// render makes a body of at most limit bytes. What a template inserts by toJson stays a
// value, whatever is in it; a body that is no JSON is none.
func render(how string, facts map[string]any, limit int) ([]byte, error) {
	t, err := template.New("ticket").Funcs(artifact.Functions).Parse(how)
	if err != nil {
		return nil, fmt.Errorf("reading template (--template): %w", err)
	}
	out := &bounded{capacity: limit}
	if err := t.Execute(out, facts); err != nil {
		return nil, fmt.Errorf("creating the ticket: %w", err)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, out.buffer.Bytes()); err != nil {
		return nil, fmt.Errorf("creating the ticket: the template does not produce JSON, use toJson for every value: %w", err)
	}
	return body.Bytes(), nil
}

// bounded is a buffer that takes no more than its capacity.
type bounded struct {
	buffer   bytes.Buffer
	capacity int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buffer.Len()+len(p) > b.capacity {
		return 0, fmt.Errorf("the body exceeds %d bytes (--max-body-bytes)", b.capacity)
	}
	return b.buffer.Write(p)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s exceeds %d bytes", path, most)
	}
	return text, err
}
