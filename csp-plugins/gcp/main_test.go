package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
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

const account = "nvsentinel@proj-1.iam.gserviceaccount.com"

var serviceAccountKeyOnce = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func serviceAccountKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := serviceAccountKeyOnce()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// serviceAccountFile writes the key file of a service account.
func serviceAccountFile(t *testing.T) (file string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(serviceAccountKey(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "proj-1", "private_key_id": "k1", "client_email": account, "client_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": "http://127.0.0.1:1/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var tested = cloudtest.Plugin{
	Open: func(t *testing.T, rebooted func(string)) cloudtest.Cloud { return newEngine(t, rebooted) },
	Start: func(t *testing.T, _ cloudtest.Cloud, url string) (args, env []string) {
		return []string{"--compute-endpoint", url}, []string{"GOOGLE_APPLICATION_CREDENTIALS=" + serviceAccountFile(t)}
	},
	Kinds: Kinds,
}

func TestConformance(t *testing.T)      { cloudtest.Conformance(t, tested) }
func TestKillsAtTheSignal(t *testing.T) { cloudtest.KillsAtTheSignal(t, tested) }
func TestClaims(t *testing.T)           { cloudtest.Claims(t, tested) }
func TestProofs(t *testing.T)           { cloudtest.Proofs(t, tested) }
func TestOperations(t *testing.T)       { cloudtest.Operations(t, tested) }
func TestReadiness(t *testing.T)        { cloudtest.Readiness(t, tested) }

func TestKills(t *testing.T) {
	testkit.Long(t, "TestKillsAtTheSignal")
	cloudtest.Kills(t, tested)
}

// connect makes a provider and the Compute Engine that it speaks to.
func connect(t *testing.T) (*Provider, *engine) {
	t.Helper()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccountFile(t))
	e := newEngine(t, func(string) {})
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	p, err := New(t.Context(), Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return p, e
}

// What goes wrong at Compute Engine becomes the answer that states what was done. A
// signal is never repeated by the plugin itself; sent again under its id, it is
// carried out once.
func TestAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		fault fault
		want  codes.Code
		wait  time.Duration
	}{
		"rate limit":                     {fault{status: 403, reason: "rateLimitExceeded"}, codes.ResourceExhausted, 30 * time.Second},
		"quota":                          {fault{status: 403, reason: "quotaExceeded"}, codes.ResourceExhausted, 30 * time.Second},
		"429 of something in between":    {fault{status: 429}, codes.ResourceExhausted, 30 * time.Second},
		"not allowed":                    {fault{status: 403, reason: "forbidden"}, codes.PermissionDenied, 0},
		"API is off":                     {fault{status: 403, reason: "accessNotConfigured"}, codes.PermissionDenied, 0},
		"expired":                        {fault{status: 401, reason: "authError"}, codes.Unauthenticated, 0},
		"not found":                      {fault{status: 404, reason: "notFound"}, codes.NotFound, 0},
		"404 of something in between":    {fault{status: 404}, codes.Unavailable, 0},
		"another operation is at work":   {fault{status: 400, reason: "resourceNotReady"}, codes.Aborted, 0},
		"conflict":                       {fault{status: 409, reason: "conflict"}, codes.Aborted, 0},
		"condition":                      {fault{status: 412, reason: "conditionNotMet"}, codes.FailedPrecondition, 0},
		"a parameter":                    {fault{status: 400, reason: "invalidParameter"}, codes.InvalidArgument, 0},
		"in use":                         {fault{status: 400, reason: "resourceInUseByAnotherResource"}, codes.Aborted, 0},
		"protected":                      {fault{status: 400, reason: "invalidResourceUsage"}, codes.FailedPrecondition, 0},
		"unheard of, 400":                {fault{status: 400, reason: "somethingNew"}, codes.Aborted, 0},
		"unheard of, 403":                {fault{status: 403, reason: "somethingNew"}, codes.Aborted, 0},
		"unheard of, 404":                {fault{status: 404, reason: "somethingNew"}, codes.Aborted, 0},
		"unheard of, 408":                {fault{status: 408, reason: "somethingNew"}, codes.Unavailable, 0},
		"unheard of, 409":                {fault{status: 409, reason: "somethingNew"}, codes.Aborted, 0},
		"unheard of, 412":                {fault{status: 412, reason: "somethingNew"}, codes.Aborted, 0},
		"500":                            {fault{status: 500, reason: "internalError"}, codes.Unavailable, 0},
		"503":                            {fault{status: 503, reason: "backendError"}, codes.Unavailable, 0},
		"503 after it was done":          {fault{status: 503, reason: "backendError", after: true}, codes.Unavailable, 0},
		"connection broken":              {fault{cut: true}, codes.Unavailable, 0},
		"connection broken after effect": {fault{cut: true, after: true}, codes.Unavailable, 0},
		"no answer":                      {fault{hang: true}, codes.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, e := connect(t)
			machine := e.Add("gpu-1", "10.0.0.1")
			if _, err := p.State(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			e.change(func() { e.faults = []fault{tt.fault} })
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
			e.change(func() {
				if len(e.requestLog) != 1 {
					t.Errorf("requests: %v, want one", e.requestLog)
				}
			})
			if _, err := p.Begin(t.Context(), signal); err != nil {
				t.Errorf("sent again: %v", err)
			}
			if reboots, _ := e.OperationCounts(machine); reboots != 1 {
				t.Errorf("%d reboots, want 1", reboots)
			}
		})
	}
}

// Without a connection, and without a token, nothing was sent.
func TestUnsent(t *testing.T) {
	_, e := connect(t)
	machine := e.Add("gpu-1", "")
	away, err := New(t.Context(), Config{Endpoint: "http://127.0.0.1:1"}) // a port that no test is given
	if err != nil {
		t.Fatal(err)
	}
	if _, err := away.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Aborted {
		t.Errorf("no connection: %v, want Aborted", err)
	}
	file := filepath.Join(t.TempDir(), "user.json")
	if err := os.WriteFile(file, []byte(`{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"r","token_uri":"http://127.0.0.1:1/"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	unsigned, err := New(t.Context(), Config{Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unsigned.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no token: %v, want Unauthenticated", err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
	if _, err := New(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "/nowhere.json") {
		t.Errorf("no credentials: %v, want the start to fail and to name the file", err)
	}
}

func TestMachines(t *testing.T) {
	p, e := connect(t)
	machine := e.Add("gpu-1", "10.0.0.1")
	for _, name := range []string{"", "aws:///us-west-2a/i-0123456789abcdef0", "gce://proj-1/us-central1-a/", "gce://proj-1/us-central1-a/../x", "gce://proj-1/us-central1-a/x?y", "gce:///us-central1-a/x"} {
		if _, err := p.Begin(t.Context(), cloud.Signal{Machine: name, ID: uuid.New()}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("machine %q: %v, want FailedPrecondition", name, err)
		}
	}
	if _, err := p.Begin(t.Context(), cloud.Signal{Machine: project + "none", ID: uuid.New()}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown instance: %v, want NotFound", err)
	}
	for state, want := range map[string]cloud.State{
		"PROVISIONING": cloud.NotUp, "STAGING": cloud.NotUp, "RUNNING": cloud.Up, "STOPPING": cloud.NotUp, "TERMINATED": cloud.NotUp,
		"SUSPENDED": cloud.NotUp, "REPAIRING": cloud.NotUp, "": cloud.Gone,
	} {
		e.change(func() { e.instances[path(machine)].status = state })
		if got, err := p.State(t.Context(), machine); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", state, got, err, want)
		}
	}
	e.change(func() { e.instances[path(machine)].status, e.instances[path(machine)].protected = "TERMINATED", true })
	if _, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Aborted {
		t.Errorf("a stopped instance: %v, want Aborted", err)
	}
	if _, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, Terminate: true, ID: uuid.New()}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a protected instance: %v, want FailedPrecondition", err)
	}
	e.change(func() { e.instances[path(machine)].hostname = "gpu-1.example.com" })
	e.Tag(machine, "cluster", "c1")
	id, err := p.Identity(t.Context(), machine)
	want := cloud.Identity{Names: map[string][]string{
		Name: {"gpu-1", "gpu-1.us-central1-a.c.proj-1.internal", "gpu-1.c.proj-1.internal"}, Hostname: {"gpu-1.example.com"},
	}, Tags: map[string]string{"cluster": "c1"}}
	if err != nil || !reflect.DeepEqual(id, want) {
		t.Errorf("identity %v, %v; want %v", id, err, want)
	}
}

// A managed instance group makes a new instance under the name of one that was
// deleted: the operation's end shows that the old one is gone.
func TestRecreated(t *testing.T) {
	cloudtest.Recreated(t, tested, func(c cloudtest.Cloud, machine string) {
		e := c.(*engine)
		e.change(func() { e.instances[path(machine)].recreateAfter = true })
	})
}
