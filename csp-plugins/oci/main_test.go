package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { cloudtest.Main(m, main) }

const (
	tenancy     = "ocid1.tenancy.oc1..t1"
	user        = "ocid1.user.oc1..u1"
	fingerprint = "aa:bb:cc:dd"
)

var apiKeyOnce = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func apiKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := apiKeyOnce()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// configure writes a configuration file and the API key that it names.
func configure(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key.pem"), filepath.Join(dir, "config")
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(apiKey(t))})
	if err := os.WriteFile(key, text, 0o600); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("[DEFAULT]\ntenancy=%s\nuser=%s\nfingerprint=%s\nregion=us-phoenix-1\nkey_file=%s\n", tenancy, user, fingerprint, key)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var tested = cloudtest.Plugin{
	Open: func(t *testing.T, rebooted func(string)) cloudtest.Cloud { return newOracle(t, rebooted) },
	Start: func(t *testing.T, _ cloudtest.Cloud, url string) (args, env []string) {
		return []string{"--auth", File, "--oci-config-file", configure(t), "--oci-endpoint", url}, nil
	},
	Kinds: Kinds,
}

func TestConformance(t *testing.T) {
	testkit.Long(t, "gcp's TestConformance, in the same frame, and this plugin's TestAnswers and TestOperations")
	cloudtest.Conformance(t, tested)
}

func TestKillsAtTheSignal(t *testing.T) { cloudtest.KillsAtTheSignal(t, tested) }
func TestClaims(t *testing.T)           { cloudtest.Claims(t, tested) }
func TestProofs(t *testing.T)           { cloudtest.Proofs(t, tested) }
func TestOperations(t *testing.T)       { cloudtest.Operations(t, tested) }
func TestReadiness(t *testing.T)        { cloudtest.Readiness(t, tested) }

// OCI does not distinguish an instance that is gone from one that may not be seen: with a few
// of them, left over from machines that are gone for long, the plugin is ready.
func TestVerifyReadiness(t *testing.T) {
	cloudtest.VerifyReadiness(t, tested, func(n int) string { return fmt.Sprintf("%sgone%d", ocids, n) })
}

func TestKills(t *testing.T) {
	testkit.Long(t, "TestKillsAtTheSignal")
	cloudtest.Kills(t, tested)
}

// connect makes a provider and the OCI that it speaks to.
func connect(t *testing.T) (*Provider, *oracle) {
	t.Helper()
	o := newOracle(t, func(string) {})
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	p, err := New(Config{Auth: File, ConfigFile: configure(t), Profile: "DEFAULT", Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return p, o
}

// What goes wrong at OCI becomes the answer that states what was done. A signal is never
// repeated by the plugin itself; sent again under its token, it is carried out once.
func TestAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		fault fault
		want  codes.Code
		wait  time.Duration
	}{
		"too many requests":              {fault{status: 429, code: "TooManyRequests"}, codes.ResourceExhausted, 30 * time.Second},
		"429 of something in between":    {fault{status: 429}, codes.ResourceExhausted, 30 * time.Second},
		"not authenticated":              {fault{status: 401, code: "NotAuthenticated"}, codes.Unauthenticated, 0},
		"not there or not allowed":       {fault{status: 404, code: "NotAuthorizedOrNotFound"}, codes.PermissionDenied, 0},
		"404 of something in between":    {fault{status: 404}, codes.Unavailable, 0},
		"not allowed":                    {fault{status: 403, code: "NotAuthorized"}, codes.PermissionDenied, 0},
		"in the wrong state":             {fault{status: 409, code: "IncorrectState"}, codes.Aborted, 0},
		"conflict":                       {fault{status: 409, code: "Conflict"}, codes.Aborted, 0},
		"the token was overtaken":        {fault{status: 409, code: "InvalidatedRetryToken"}, codes.Unavailable, 0},
		"another etag":                   {fault{status: 412, code: "NoEtagMatch"}, codes.Aborted, 0},
		"a parameter":                    {fault{status: 400, code: "InvalidParameter"}, codes.InvalidArgument, 0},
		"a limit":                        {fault{status: 400, code: "LimitExceeded"}, codes.FailedPrecondition, 0},
		"unheard of, 409":                {fault{status: 409, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 400":                {fault{status: 400, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 403":                {fault{status: 403, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 404":                {fault{status: 404, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 408":                {fault{status: 408, code: "SomethingNew"}, codes.Unavailable, 0},
		"unheard of, 501":                {fault{status: 501, code: "SomethingNew"}, codes.Unavailable, 0},
		"500":                            {fault{status: 500, code: "InternalServerError"}, codes.Unavailable, 0},
		"503":                            {fault{status: 503, code: "ServiceUnavailable"}, codes.Unavailable, 0},
		"503 after it was done":          {fault{status: 503, code: "ServiceUnavailable", after: true}, codes.Unavailable, 0},
		"connection broken":              {fault{cut: true}, codes.Unavailable, 0},
		"connection broken after effect": {fault{cut: true, after: true}, codes.Unavailable, 0},
		"no answer":                      {fault{hang: true}, codes.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, o := connect(t)
			machine := o.Add("gpu-1", "10.0.0.1")
			if _, err := p.State(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			o.change(func() { o.faults = []fault{tt.fault} })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if tt.fault.hang {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
			}
			defer cancel()
			signal := cloud.Signal{Machine: machine, ID: uuid.New()}
			if _, err := p.Begin(ctx, signal); status.Code(err) != tt.want || cloudtest.RetryAfter(err) != tt.wait {
				t.Errorf("%v after %s, want %s after %s", err, cloudtest.RetryAfter(err), tt.want, tt.wait)
			}
			o.change(func() {
				if len(o.requests) != 1 {
					t.Errorf("requests: %v, want one", o.requests)
				}
			})
			if _, err := p.Begin(t.Context(), signal); err != nil {
				t.Errorf("sent again: %v", err)
			}
			if reboots, _ := o.OperationCounts(machine); reboots != 1 {
				t.Errorf("%d reboots, want 1", reboots)
			}
		})
	}
}

// Without a connection nothing was sent; without credentials the plugin does not
// start.
func TestUnsent(t *testing.T) {
	away, err := New(Config{Auth: File, ConfigFile: configure(t), Profile: "DEFAULT", Endpoint: "http://127.0.0.1:1"}) // a port that no test is given
	if err != nil {
		t.Fatal(err)
	}
	if _, err := away.Begin(t.Context(), cloud.Signal{Machine: ocids + "x", ID: uuid.New()}); status.Code(err) != codes.Aborted {
		t.Errorf("no connection: %v, want Aborted", err)
	}
	for _, auth := range []string{File, Workload} {
		if _, err := New(Config{Auth: auth, ConfigFile: "/nowhere/config", Profile: "DEFAULT"}); err == nil || !strings.Contains(err.Error(), auth) {
			t.Errorf("no credentials by %s: %v, want the start to fail", auth, err)
		}
	}
	c := Default()
	c.Plaintext, c.Auth = true, "password"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--auth") {
		t.Errorf("auth %q: %v, want it refused", c.Auth, err)
	}
	c.Auth = File
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--oci-config-file") {
		t.Errorf("auth %q without a file: %v, want it refused", c.Auth, err)
	}
}

func TestMachines(t *testing.T) {
	p, o := connect(t)
	machine := o.Add("gpu-1", "10.0.0.1")
	for _, name := range []string{"", "gce://p/z/n", "ocid1.instance.oc1.phx.", "ocid1.volume.oc1.phx.x", ocids + "x/../y", ocids + "x?action=STOP"} {
		if _, err := p.Begin(t.Context(), cloud.Signal{Machine: name, ID: uuid.New()}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("machine %q: %v, want FailedPrecondition", name, err)
		}
	}
	if _, err := p.State(t.Context(), ocids+"none"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an unknown instance: %v, want PermissionDenied: it may be there", err)
	}
	for state, want := range map[string]cloud.State{
		"MOVING": cloud.NotUp, "PROVISIONING": cloud.NotUp, "RUNNING": cloud.Up, "STARTING": cloud.NotUp, "STOPPING": cloud.NotUp,
		"STOPPED": cloud.NotUp, "TERMINATING": cloud.NotUp, "TERMINATED": cloud.Gone,
	} {
		o.change(func() { o.instances[machine].state = state })
		if got, err := p.State(t.Context(), "oci://"+machine); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", state, got, err, want)
		}
	}
	o.change(func() { o.instances[machine].state = "STOPPED" })
	if _, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Aborted {
		t.Errorf("an instance in the wrong state: %v, want Aborted", err)
	}
	o.Tag(machine, "cluster", "c1")
	id, err := p.Identity(t.Context(), machine)
	want := cloud.Identity{
		Names: map[string][]string{DisplayName: {"gpu-1"}, Hostname: {"gpu-1"}, PrivateIP: {"10.0.0.1"}},
		Tags:  map[string]string{"cluster": "c1", "Operations.CostCenter": "42"},
	}
	if err != nil || !reflect.DeepEqual(id, want) {
		t.Errorf("identity %v, %v; want %v", id, err, want)
	}
	if one, err := p.Canonical("oci://" + machine); err != nil || one != machine {
		t.Errorf("with a scheme it is machine %q, %v; want %q", one, err, machine)
	}
}

// Force does not wait for the operating system. Where OCI makes no work request of a
// power action, there is no operation to ask about.
func TestResets(t *testing.T) {
	p, o := connect(t)
	machine := o.Add("gpu-1", "10.0.0.1")
	for _, force := range []bool{false, true} {
		if operation, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, Force: force, ID: uuid.New()}); err != nil || operation == "" {
			t.Errorf("force %v: %q, %v", force, operation, err)
		}
	}
	o.change(func() { o.noWork = true })
	if operation, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); err != nil || operation != "" {
		t.Errorf("without a work request: %q, %v", operation, err)
	}
	if want := []string{"SOFTRESET", "RESET", "SOFTRESET"}; !slices.Equal(o.requests, want) {
		t.Errorf("actions %v, want %v", o.requests, want)
	}
}
