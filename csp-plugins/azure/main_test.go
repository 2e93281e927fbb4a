package main

import (
	"context"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { cloudtest.Main(m, main) }

var tested = cloudtest.Plugin{
	Open: func(t *testing.T, rebooted func(string)) cloudtest.Cloud { return newManager(t, rebooted) },
	Start: func(_ *testing.T, c cloudtest.Cloud, url string) (args, env []string) {
		m := c.(*manager)
		m.change(func() { m.url = url })
		return []string{"--arm-endpoint", url, "--authority", url}, []string{
			"AZURE_TENANT_ID=" + tenant, "AZURE_CLIENT_ID=" + client, "AZURE_CLIENT_SECRET=" + secret, "AZURE_TOKEN_CREDENTIALS=EnvironmentCredential",
		}
	},
	TLS: true, NoRequestIDs: true, Kinds: Kinds,
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

func TestKills(t *testing.T) {
	testkit.Long(t, "TestKillsAtTheSignal")
	cloudtest.Kills(t, tested)
}

// connect makes a provider and the Azure that it speaks to, with two machines: one
// alone and one in a scale set.
func connect(t *testing.T) (p *Provider, m *manager, machines []string) {
	t.Helper()
	m = newManager(t, func(string) {})
	server := httptest.NewTLSServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	where := azcloud.Configuration{Services: map[azcloud.ServiceName]azcloud.ServiceConfiguration{
		azcloud.ResourceManager: {Endpoint: server.URL, Audience: "https://management.azure.com"},
	}}
	p = With(&azfake.TokenCredential{}, azcore.ClientOptions{Cloud: where, Transport: server.Client()})
	return p, m, []string{m.Add("gpu-1", ""), m.Add("gpu-2", "")}
}

// What goes wrong at Azure becomes the answer that states what was done. A signal is
// never repeated by the plugin itself.
func TestAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		fault fault
		want  codes.Code
		wait  time.Duration
	}{
		"too many requests":              {fault{status: 429, code: "TooManyRequests", wait: "17"}, codes.ResourceExhausted, 17 * time.Second},
		"too many requests for long":     {fault{status: 429, code: "OperationNotAllowed", wait: "86400"}, codes.ResourceExhausted, 10 * time.Minute},
		"429 of something in between":    {fault{status: 429}, codes.ResourceExhausted, 30 * time.Second},
		"expired":                        {fault{status: 401, code: "ExpiredAuthenticationToken"}, codes.Unauthenticated, 0},
		"not allowed":                    {fault{status: 403, code: "AuthorizationFailed"}, codes.PermissionDenied, 0},
		"no such subscription":           {fault{status: 404, code: "SubscriptionNotFound"}, codes.PermissionDenied, 0},
		"not found":                      {fault{status: 404, code: "ResourceNotFound"}, codes.NotFound, 0},
		"404 of something in between":    {fault{status: 404}, codes.Unavailable, 0},
		"another operation is at work":   {fault{status: 409, code: "AnotherOperationInProgress"}, codes.Aborted, 0},
		"not in this state":              {fault{status: 409, code: "OperationNotAllowed"}, codes.Aborted, 0},
		"in use":                         {fault{status: 409, code: "ResourceInUse"}, codes.Aborted, 0},
		"locked":                         {fault{status: 409, code: "ScopeLocked"}, codes.FailedPrecondition, 0},
		"a policy of the tenant":         {fault{status: 403, code: "RequestDisallowedByPolicy"}, codes.FailedPrecondition, 0},
		"a parameter":                    {fault{status: 400, code: "InvalidParameter"}, codes.InvalidArgument, 0},
		"unheard of, 400":                {fault{status: 400, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 403":                {fault{status: 403, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 404":                {fault{status: 404, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 408":                {fault{status: 408, code: "SomethingNew"}, codes.Unavailable, 0},
		"unheard of, 409":                {fault{status: 409, code: "SomethingNew"}, codes.Aborted, 0},
		"unheard of, 412":                {fault{status: 412, code: "SomethingNew"}, codes.Aborted, 0},
		"500":                            {fault{status: 500, code: "InternalServerError"}, codes.Unavailable, 0},
		"503":                            {fault{status: 503, code: "ServiceUnavailable"}, codes.Unavailable, 0},
		"503 after it was done":          {fault{status: 503, code: "ServiceUnavailable", after: true}, codes.Unavailable, 0},
		"connection broken":              {fault{cut: true}, codes.Unavailable, 0},
		"connection broken after effect": {fault{cut: true, after: true}, codes.Unavailable, 0},
		"no answer":                      {fault{hang: true}, codes.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, m, machines := connect(t)
			for _, machine := range machines {
				if _, err := p.State(t.Context(), machine); err != nil {
					t.Fatal(err)
				}
				m.change(func() { m.faults = []fault{tt.fault} })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if tt.fault.hang {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
				}
				if _, err := p.Begin(ctx, cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != tt.want || cloudtest.RetryAfter(err) != tt.wait {
					t.Errorf("%v after %s, want %s after %s", err, cloudtest.RetryAfter(err), tt.want, tt.wait)
				}
				cancel()
				if reboots, _ := m.OperationCounts(machine); (reboots == 1) != tt.fault.after {
					t.Errorf("%d reboots, effect %v", reboots, tt.fault.after)
				}
			}
		})
	}
}

// Without a connection, and without a token, nothing was sent.
func TestUnsent(t *testing.T) {
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
	for _, name := range []string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"} {
		t.Setenv(name, "")
	}
	machine := "azure://" + group + "virtualMachines/x"
	none, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no credentials: %v, want Unauthenticated", err)
	}
	t.Setenv("AZURE_TENANT_ID", tenant)
	t.Setenv("AZURE_CLIENT_ID", client)
	t.Setenv("AZURE_CLIENT_SECRET", secret)
	c := Default()
	c.Endpoint, c.Authority = "https://127.0.0.1:1", "https://127.0.0.1:1" // a port that no test is given
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no token: %v, want Unauthenticated", err)
	}
	where := azcloud.Configuration{Services: map[azcloud.ServiceName]azcloud.ServiceConfiguration{azcloud.ResourceManager: {Endpoint: "https://127.0.0.1:1", Audience: "a"}}}
	away := With(&azfake.TokenCredential{}, azcore.ClientOptions{Cloud: where})
	if _, err := away.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Aborted {
		t.Errorf("no connection: %v, want Aborted", err)
	}
	c = Default()
	c.Plaintext, c.Cloud, c.Endpoint = true, "mars", "http://arm"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--cloud") || !strings.Contains(err.Error(), "--arm-endpoint") {
		t.Errorf("the configuration: %v, want cloud and endpoint refused", err)
	}
}

func TestMachines(t *testing.T) {
	p, m, machines := connect(t)
	for _, name := range []string{
		"", "gce://p/z/n", group + "virtualMachines/x", "azure://" + group + "disks/x", "azure://" + group + "virtualMachines/x?y=z",
		"azure://" + group + "virtualMachineScaleSets/pool", "azure:///subscriptions/s/virtualMachines/x", "azure://" + group + "virtualMachines/x/extensions/y",
	} {
		if _, err := p.Begin(t.Context(), cloud.Signal{Machine: name, ID: uuid.New()}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("machine %q: %v, want FailedPrecondition", name, err)
		}
	}
	for i, machine := range machines {
		one := m.find(machine)
		for state, want := range map[string]cloud.State{
			"Succeeded running": cloud.Up, "Failed running": cloud.Up, "Updating running": cloud.NotUp, "Creating ": cloud.NotUp,
			"Succeeded stopped": cloud.NotUp, "Succeeded deallocated": cloud.NotUp, "Deleting running": cloud.NotUp,
		} {
			m.change(func() { one.provisioning, one.power, _ = strings.Cut(state, " ") })
			if got, err := p.State(t.Context(), machine); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", state, got, err, want)
			}
		}
		m.Tag(machine, "cluster", "c1")
		id, err := p.Identity(t.Context(), machine)
		want := cloud.Identity{
			Names: map[string][]string{ComputerName: {one.computer}, VMName: {[]string{"gpu-1", ""}[i]}}, Tags: map[string]string{"cluster": "c1"},
		}
		if err != nil || !reflect.DeepEqual(id, want) {
			t.Errorf("identity %v, %v; want %v", id, err, want)
		}
		upper, err := p.Canonical(strings.ToUpper(machine[len("azure://"):]))
		if err == nil {
			t.Errorf("what is no providerID is machine %q", upper)
		}
		upper, err = p.Canonical("azure://" + strings.ToUpper(machine[len("azure://"):]))
		if lower, _ := p.Canonical(machine); err != nil || upper != lower {
			t.Errorf("in capitals it is machine %q, %v; want %q", upper, err, lower)
		}
		m.change(func() { one.provisioning, one.power = "Succeeded", "deallocated" })
		if _, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.Aborted {
			t.Errorf("a deallocated machine: %v, want Aborted", err)
		}
		for _, force := range []bool{false, true} {
			if _, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, Terminate: true, Force: force, ID: uuid.New()}); err != nil {
				t.Errorf("a termination: %v", err)
			}
			if one.force == nil || *one.force != force {
				t.Errorf("force %v: %v", force, one.force)
			}
		}
		m.change(func() { one.deleted = true })
		if got, err := p.State(t.Context(), machine); err != nil || got != cloud.Gone {
			t.Errorf("a deleted machine is %s, %v; want Gone", got, err)
		}
		if _, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()}); status.Code(err) != codes.NotFound {
			t.Errorf("a deleted machine: %v, want NotFound", err)
		}
	}
}

// The plugin's token goes to Azure Resource Manager alone, whatever was written down
// as an operation.
func TestOperationsElsewhere(t *testing.T) {
	p, m, machines := connect(t)
	reported := 0
	elsewhere := httptest.NewTLSServer(nil)
	t.Cleanup(elsewhere.Close)
	for _, machine := range machines {
		operation, err := p.Begin(t.Context(), cloud.Signal{Machine: machine, ID: uuid.New()})
		if err != nil || len(operation) > 4096 {
			t.Fatalf("operation of %d bytes, %v", len(operation), err)
		}
		if got, err := p.Progress(t.Context(), machine, operation); err != nil || got != cloud.Running {
			t.Errorf("its own: %s, %v; want Running", got, err)
		}
		forged := strings.ReplaceAll(operation, m.url, elsewhere.URL)
		for _, other := range []string{forged, "x", "{}", `{"token":{}}`} {
			if got, err := p.Progress(t.Context(), machine, other); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%s: %s, %v; want FailedPrecondition", other, got, err)
			}
		}
		reported++
	}
	if want := []string{"restart", "restart"}; !slices.Equal(m.requests, want) || reported != 2 {
		t.Errorf("Azure was told %v, want %v", m.requests, want)
	}
}
