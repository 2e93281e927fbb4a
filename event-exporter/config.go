package eventexporter

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/delivery"
	"github.com/nvidia/nvsentinel/event-exporter/internal/sender"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Config is what an operator can set of the event exporter. Where the meaning is the
// same, the keys are those of existing installations.
type Config struct {
	storeopen.Location

	Exporter Exporter `toml:"exporter"`
	// Workers is how many requests are under way at once. A node's events go
	// through one of them, in order.
	Workers int `toml:"workers" bounds:"1 to 1024" flag:"workers" usage:"Maximum number of concurrent requests to the receiver."`
	// Kubeconfig is for the lease only.
	Kubeconfig string       `toml:"kubeconfig" flag:"kubeconfig" usage:"Path of a kubeconfig, for the lease only. Empty uses the service account of the Pod."`
	Lease      lease.Config `toml:"leaderElection"`
}

// Exporter is the part of the file that existing installations have.
type Exporter struct {
	// Metadata goes with every event; its key cluster is required.
	Metadata map[string]string `toml:"metadata"`
	Sink     Sink              `toml:"sink"`
	OIDC     OIDC              `toml:"oidc"`
	Backfill Backfill          `toml:"backfill"`
	Failure  Failure           `toml:"failureHandling"`
	// MaxLag is the age of the oldest undelivered event from which on the
	// service is not ready; 0 never.
	MaxLag time.Duration `toml:"maxLag" bounds:"at least 0s"`
}

// Sink is the receiver.
type Sink struct {
	// Endpoint gets the POST requests.
	Endpoint string `toml:"endpoint" flag:"endpoint" usage:"URL of the receiver of the events."`
	// Timeout bounds one request.
	Timeout time.Duration `toml:"timeout" bounds:"above 0s"`
	// Mode is structured or binary.
	Mode sender.Mode `toml:"mode" bounds:"structured, binary"`
	// BatchSize is how many events one request carries at most; 1 sends none in
	// batches.
	BatchSize int `toml:"batchSize" bounds:"1 to 1000"`
	// TokenFile holds a bearer token; it is read for every request.
	TokenFile config.SecretFile `toml:"tokenFile"`
	// CAFile, CertFile and KeyFile are read for every connection.
	CAFile   string `toml:"caFile"`
	CertFile string `toml:"certFile"`
	KeyFile  string `toml:"keyFile"`
}

// OIDC are the OAuth2 client credentials; none without a token URL.
type OIDC struct {
	// TokenURL gives the tokens; empty asks for none.
	TokenURL string `toml:"tokenURL"`
	// ClientID and Scope, with blanks between several scopes, are what is asked for.
	ClientID   string            `toml:"clientID"`
	Scope      string            `toml:"scope"`
	SecretFile config.SecretFile `toml:"secretFile" flag:"oidc-secret-path" usage:"File with the OAuth2 client secret, read again for every token."`
}

// Backfill bounds what is sent of the past.
type Backfill struct {
	// Enabled sends what was stored before the first start on a store.
	Enabled bool `toml:"enabled"`
	// MaxAge is how far back that goes.
	MaxAge time.Duration `toml:"maxAge" bounds:"at least 0s"`
	// RateLimit bounds the events per second of which each is older than five
	// minutes; 0 is no bound.
	RateLimit float64 `toml:"rateLimit" bounds:"0 to 1e9, per second" enforced:"Backfill.validate"`
}

// Failure is what becomes of an event that is not delivered.
type Failure struct {
	// InitialBackoff is the pause after the first failure, MaxBackoff the longest one;
	// each is Multiplier times the one before.
	InitialBackoff time.Duration `toml:"initialBackoff" bounds:"at least 1ms"`
	MaxBackoff     time.Duration `toml:"maxBackoff" bounds:"at least initialBackoff" enforced:"Failure.validate"`
	Multiplier     float64       `toml:"backoffMultiplier" bounds:"1 to 100"`
	// MaxRetryAfter bounds the pause that a receiver can ask for.
	MaxRetryAfter time.Duration `toml:"maxRetryAfter" bounds:"at least 0s"`
	// PoisonStatus lists the HTTP status codes after which an event becomes a dead letter.
	PoisonStatus []int `toml:"deadLetterStatusCodes" bounds:"400 to 599" enforced:"Failure.validate"`
}

// defaultConfig sends one event per request, and of the past a day at most.
func defaultConfig() Config {
	return Config{
		Exporter: Exporter{
			Sink:     Sink{Timeout: 30 * time.Second, Mode: sender.Structured, BatchSize: 1},
			OIDC:     OIDC{SecretFile: "/var/secrets/oidc-client-secret"},
			Backfill: Backfill{Enabled: true, MaxAge: 24 * time.Hour, RateLimit: 1000},
			Failure: Failure{
				InitialBackoff: time.Second, MaxBackoff: time.Minute, Multiplier: 2,
				MaxRetryAfter: time.Hour, PoisonStatus: []int{400, 413, 422},
			},
			MaxLag: 15 * time.Minute,
		},
		Workers: 16, Lease: lease.Default(),
	}
}

// policy is how answers are evaluated.
func (f Failure) policy() cloudevent.Policy {
	return cloudevent.Policy{Poison: f.PoisonStatus, LongestWish: f.MaxRetryAfter}
}

// pauses are those between two tries.
func (f Failure) pauses() delivery.Pauses {
	return delivery.Pauses{Initial: f.InitialBackoff, Longest: f.MaxBackoff, Multiplier: f.Multiplier}
}

// lookBack is how far back the first start on a store begins.
func (b Backfill) lookBack() time.Duration {
	if !b.Enabled {
		return 0
	}
	return b.MaxAge
}

// tls are the files for receiver and token endpoint.
func (s Sink) tls() sender.TLS {
	return sender.TLS{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	e := c.Exporter
	problems := []error{
		config.CheckBounds(c), c.Location.Validate(), c.Lease.Validate(), e.Sink.validate(), e.validateCredentials(), e.Backfill.validate(), e.Failure.validate(),
	}
	if _, err := cloudevent.NewFrame(e.Metadata); err != nil {
		problems = append(problems, fmt.Errorf("exporter.metadata: %w", err))
	}
	return errors.Join(problems...)
}

func (s Sink) validate() error {
	var problems []error
	if _, err := address(s.Endpoint); err != nil {
		problems = append(problems, fmt.Errorf("exporter.sink.endpoint: %w", err))
	}
	if s.Mode == sender.Binary && s.BatchSize > 1 {
		problems = append(problems, errors.New("exporter.sink.batchSize is more than 1 with mode = \"binary\", and batches require JSON: set mode = \"structured\""))
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		problems = append(problems, errors.New("exporter.sink.certFile and keyFile must be set together"))
	}
	return errors.Join(problems...)
}

// validateCredentials keeps secrets off networks in clear text.
func (e Exporter) validateCredentials() error {
	var problems []error
	o := e.OIDC
	if o.TokenURL == "" && (o.ClientID != "" || o.Scope != "") {
		problems = append(problems, errors.New("exporter.oidc.tokenURL is empty, and clientID or scope requires it: set it"))
	}
	if o.TokenURL == "" && e.Sink.TokenFile == "" {
		return errors.Join(problems...)
	}
	if o.TokenURL != "" && e.Sink.TokenFile != "" {
		problems = append(problems, errors.New("exporter.oidc.tokenURL and exporter.sink.tokenFile are mutually exclusive"))
	}
	if u, err := address(e.Sink.Endpoint); err == nil && !config.Private(u) {
		problems = append(problems, fmt.Errorf("exporter.sink.endpoint %q: tokens are not sent in plain text over a network, use https", e.Sink.Endpoint))
	}
	if o.TokenURL == "" {
		return errors.Join(problems...)
	}
	if u, err := address(o.TokenURL); err != nil {
		problems = append(problems, fmt.Errorf("exporter.oidc.tokenURL: %w", err))
	} else if !config.Private(u) {
		problems = append(problems, fmt.Errorf("exporter.oidc.tokenURL %q: secrets are not sent in plain text over a network, use https", o.TokenURL))
	}
	if o.ClientID == "" || o.SecretFile == "" {
		problems = append(problems, errors.New("exporter.oidc requires clientID and secretFile (--oidc-secret-path)"))
	}
	return errors.Join(problems...)
}

// address reads a URL of http or https.
func address(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("is not set, use a URL such as https://receiver.example.com/events")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is not a URL: %w", err)
	}
	if (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return nil, fmt.Errorf("%q is not an https or http URL with a host", u.Redacted())
	}
	if u.User != nil {
		return nil, errors.New("contains a user or password, use tokenFile or exporter.oidc instead")
	}
	return u, nil
}

func (b Backfill) validate() error {
	if !(b.RateLimit >= 0 && b.RateLimit <= 1e9) {
		return fmt.Errorf("exporter.backfill.rateLimit is %v, it must be a number from 0 (unlimited) to 1e9", b.RateLimit)
	}
	return nil
}

func (f Failure) validate() error {
	const at = "exporter.failureHandling."
	var problems []error
	if f.MaxBackoff < f.InitialBackoff {
		problems = append(problems, fmt.Errorf("%sinitialBackoff %s must be at most maxBackoff %s", at, f.InitialBackoff, f.MaxBackoff))
	}
	for _, s := range f.PoisonStatus {
		if s < 400 || s > 599 || slices.Contains(neverPoison, s) {
			problems = append(problems, fmt.Errorf("%sdeadLetterStatusCodes %d: it must be from 400 to 599 and none of %v, which are not caused by an event", at, s, neverPoison))
		}
	}
	return errors.Join(problems...)
}

// neverPoison are answers about the sender or the moment.
var neverPoison = []int{401, 403, 407, 408, 425, 429, 502, 503, 504}
