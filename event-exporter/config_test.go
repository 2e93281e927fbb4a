package eventexporter

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/event-exporter/internal/sender"
	"github.com/nvidia/nvsentinel/internal/config"
)

// load reads a file and flags over the defaults.
func load(t testing.TB, text string, args ...string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := defaultConfig()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	set, err := config.Bind(flags, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	return cfg, set.Load(file, os.LookupEnv)
}

const minimal = "store = \"postgres://h/d\"\n[exporter.metadata]\ncluster = \"c\"\n[exporter.sink]\nendpoint = \"https://h/e\"\n"

func TestDefaultsAreSafe(t *testing.T) {
	c, err := load(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	e := c.Exporter
	if e.Sink.Mode != sender.Structured || e.Sink.BatchSize != 1 || e.Backfill.lookBack() != 24*time.Hour || e.Backfill.RateLimit != 1000 {
		t.Errorf("defaults %+v", e)
	}
	if diff := cmp.Diff([]int{400, 413, 422}, e.Failure.policy().Poison); diff != "" {
		t.Errorf("poison (-want +got):\n%s", diff)
	}
	c, err = load(t, minimal+"[exporter.backfill]\nenabled = false\n[exporter.oidc]\ntokenURL = \"https://t\"\nclientID = \"i\"\n", "--oidc-secret-path=/s", "--workers=3")
	if err != nil || c.Exporter.Backfill.lookBack() != 0 || c.Exporter.OIDC.SecretFile != "/s" || c.Workers != 3 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestFullFileIsAccepted: every key has its documented meaning.
func TestFullFileIsAccepted(t *testing.T) {
	c, err := load(t, `
store = "postgres://h/d"
[exporter]
maxLag = "1m"
[exporter.metadata]
cluster = "c"
data_center = "eu_1"
[exporter.sink]
endpoint = "https://h/e"
timeout = "30s"
batchSize = 7
caFile = "ca"
certFile = "c"
keyFile = "k"
[exporter.oidc]
tokenURL = "https://t"
clientID = "i"
scope = "s"
secretFile = "f"
[exporter.backfill]
enabled = true
maxAge = "720h"
rateLimit = 1000.0
[exporter.failureHandling]
initialBackoff = "2s"
maxBackoff = "5m"
backoffMultiplier = 3.0
maxRetryAfter = "2h"
deadLetterStatusCodes = [400]
`)
	if err != nil {
		t.Fatal(err)
	}
	want := Exporter{
		Metadata: map[string]string{"cluster": "c", "data_center": "eu_1"},
		Sink: Sink{
			Endpoint: "https://h/e", Timeout: 30 * time.Second, Mode: sender.Structured, BatchSize: 7, CAFile: "ca", CertFile: "c", KeyFile: "k",
		},
		OIDC:     OIDC{TokenURL: "https://t", ClientID: "i", Scope: "s", SecretFile: "f"},
		Backfill: Backfill{Enabled: true, MaxAge: 720 * time.Hour, RateLimit: 1000},
		Failure: Failure{
			InitialBackoff: 2 * time.Second, MaxBackoff: 5 * time.Minute, Multiplier: 3, MaxRetryAfter: 2 * time.Hour, PoisonStatus: []int{400},
		},
		MaxLag: time.Minute,
	}
	if diff := cmp.Diff(want, c.Exporter); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// TestProblemsAreNamed: what a person reads names the key and what would be
// right.
func TestProblemsAreNamed(t *testing.T) {
	for name, tt := range map[string]struct{ more, want string }{
		"unknown key":           {"insecure_skip_verify = true", `unknown key "exporter.sink.insecure_skip_verify"`},
		"mode":                  {`mode = "avro"`, `exporter.sink.mode is "avro": must be one of structured, binary`},
		"batches of binary":     {"mode = \"binary\"\nbatchSize = 2", `set mode = "structured"`},
		"batch size":            {"batchSize = 0", "must be 1 to 1000"},
		"timeout":               {`timeout = "0s"`, "exporter.sink.timeout is 0s"},
		"half a certificate":    {`certFile = "c"`, "certFile and keyFile must be set together"},
		"poison of ours":        {"[exporter.failureHandling]\ndeadLetterStatusCodes = [400, 401]", "deadLetterStatusCodes 401"},
		"poison of success":     {"[exporter.failureHandling]\ndeadLetterStatusCodes = [200]", "deadLetterStatusCodes 200"},
		"backoff":               {"[exporter.failureHandling]\nmaxBackoff = \"1ms\"", "at most maxBackoff 1ms"},
		"multiplier":            {"[exporter.failureHandling]\nbackoffMultiplier = nan", "backoffMultiplier is NaN"},
		"rate":                  {"[exporter.backfill]\nrateLimit = nan", "rateLimit is NaN"},
		"age":                   {"[exporter.backfill]\nmaxAge = \"-1h\"", "maxAge is -1h0m0s"},
		"two kinds of tokens":   {"tokenFile = \"f\"\n[exporter.oidc]\ntokenURL = \"https://t\"\nclientID = \"i\"", "are mutually exclusive"},
		"a client without url":  {"[exporter.oidc]\nclientID = \"i\"", "tokenURL is empty"},
		"a url without client":  {"[exporter.oidc]\ntokenURL = \"https://t\"", "requires clientID"},
		"a readable secret":     {"[exporter.oidc]\ntokenURL = \"http://t\"\nclientID = \"i\"", "are not sent in plain text over a network,"},
		"negative lag":          {"[exporter]\nmaxLag = \"-1s\"", "exporter.maxLag is -1s"},
		"leader without margin": {"[leaderElection]\nenabled = true\nrenewDeadline = \"1m\"", "leaderElection.leaseDuration"},
	} {
		if _, err := load(t, minimal+tt.more); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
	}
	_, err := load(t, "", "--workers=0")
	for _, want := range []string{`cluster is missing`, "store (--store) is empty", "exporter.sink.endpoint: is not set", "workers (--workers) is 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an empty file: %v, want %q in it", err, want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://h:1/p?q=1": "", "http://h/p": "", "ftp://h": "not an https or http", "https://": "not an https or http",
		"https://u:p@h": "contains a user or password,", "%": "is not a URL", "h": "not an https or http",
	} {
		_, err := load(t, minimal, "--endpoint="+endpoint)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", endpoint, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: the error repeats the password: %v", endpoint, err)
		}
	}
	for endpoint, ok := range map[string]bool{"https://h": true, "http://h": false, "http://localhost:8": true, "http://127.0.0.1": true, "http://[::1]:8": true} {
		if _, err := load(t, minimal+"tokenFile = \"f\"", "--endpoint="+endpoint); (err == nil) != ok {
			t.Errorf("a token to %q: %v", endpoint, err)
		}
	}
}

// FuzzConfig: no file makes the reader panic, and what it admits can be used.
func FuzzConfig(f *testing.F) {
	f.Add(minimal)
	f.Add(minimal + "[exporter.failureHandling]\ndeadLetterStatusCodes = [400]\nbackoffMultiplier = 1.5\n[exporter.backfill]\nrateLimit = 0.5\n")
	f.Add("[exporter.sink]\nendpoint = \"http://[::1\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(t, text)
		if err != nil {
			return
		}
		e := c.Exporter
		if e.Metadata["cluster"] == "" || e.Sink.Endpoint == "" || e.Sink.BatchSize < 1 || c.Workers < 1 || e.Sink.Timeout <= 0 || e.Failure.InitialBackoff <= 0 {
			t.Errorf("admitted: %+v", c)
		}
	})
}

// TestAWriterOfTheFileReadsNoSecret: what goes to the receiver, or into an error, holds
// nothing of the files that the pod has for others, whatever stands in the file.
func TestAWriterOfTheFileReadsNoSecret(t *testing.T) {
	const planted = "postgres://owner:pl4nted@h/d?sslmode=disable"
	uri := filepath.Join(t.TempDir(), "uri")
	if err := os.WriteFile(uri, []byte(planted), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := "${file:" + uri + "}"
	for name, tt := range map[string]struct{ more, want string }{
		"metadata": {"[exporter.metadata]\ncluster = \"c\"\nleak = \"" + ref + "\"\n", `key "exporter.metadata.leak": ` + ref},
		"endpoint": {"[exporter.metadata]\ncluster = \"c\"\n[exporter.sink]\nendpoint = \"http://evil/?q=" + ref + "\"\n", `key "exporter.sink.endpoint": ` + ref},
		"client":   {"[exporter.oidc]\nclientID = \"" + ref + "\"\n", `key "exporter.oidc.clientID": ` + ref},
		"token":    {"[exporter.metadata]\ncluster = \"c\"\n[exporter.sink]\nendpoint = \"https://evil\"\ntokenFile = \"" + uri + "\"\n", "exporter.sink.tokenFile: " + uri + " is already the secret for key store"},
		"secret": {"[exporter.metadata]\ncluster = \"c\"\n[exporter.sink]\nendpoint = \"https://evil\"\n[exporter.oidc]\ntokenURL = \"https://evil\"\nclientID = \"i\"\nsecretFile = \"" + uri + "\"\n",
			"exporter.oidc.secretFile: " + uri + " is already the secret for key store"},
	} {
		c, err := load(t, tt.more, "--store="+ref)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "pl4nted") {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
		if c.Exporter.Metadata["leak"] == planted {
			t.Errorf("%s: the metadata hold the secret", name)
		}
	}
	c, err := load(t, strings.Replace(minimal, "store = \"postgres://h/d\"", "", 1), "--store="+ref)
	if err != nil || c.Store.Reveal() != planted {
		t.Errorf("the store's own reference: %v", err)
	}
}
