package main

import (
	"context"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/ec2fake"
)

const (
	id      = "i-0123456789abcdef0"
	machine = "aws:///us-west-2a/" + id
)

// connect makes a provider of an account, and the EC2 that knows it.
func connect(t *testing.T, session string) (*Provider, *ec2fake.Cloud) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret/of+the=test")
	t.Setenv("AWS_SESSION_TOKEN", session)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	fake := ec2fake.New(ec2fake.Account{AccessKey: "AKIDTEST", Secret: "secret/of+the=test", SessionToken: session}, id)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	p, err := New(t.Context(), Config{Region: "us-west-2", Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return p, fake
}

// What goes wrong at EC2 becomes the answer that states what was done; a signal is
// never repeated by the plugin itself.
func TestAnswers(t *testing.T) {
	const signal = "RebootInstances"
	for _, tt := range []struct {
		name   string
		fault  ec2fake.Fault
		want   codes.Code
		wait   time.Duration
		effect bool
	}{
		{"throttled", ec2fake.Fault{Code: "RequestLimitExceeded", Status: 503}, codes.ResourceExhausted, retryAfter, false},
		{"429", ec2fake.Fault{Code: "SlowDown", Status: 429}, codes.ResourceExhausted, retryAfter, false},
		{"500", ec2fake.Fault{Code: "InternalError", Status: 500}, codes.Unavailable, 0, false},
		{"500 after it was done", ec2fake.Fault{Code: "InternalError", Status: 500, After: true}, codes.Unavailable, 0, true},
		{"the connection breaks after it was done", ec2fake.Fault{After: true}, codes.Unavailable, 0, true},
		{"no answer", ec2fake.Fault{Hang: true}, codes.DeadlineExceeded, 0, false},
		{"expired", ec2fake.Fault{Code: "ExpiredToken", Status: 400}, codes.Unauthenticated, 0, false},
		{"not allowed", ec2fake.Fault{Code: "UnauthorizedOperation", Status: 403}, codes.PermissionDenied, 0, false},
		{"a parameter", ec2fake.Fault{Code: "InvalidParameterCombination", Status: 400}, codes.InvalidArgument, 0, false},
		{"not in this state", ec2fake.Fault{Code: "IncorrectInstanceState", Status: 400}, codes.Aborted, 0, false},
		{"an account that is being verified", ec2fake.Fault{Code: "PendingVerification", Status: 400}, codes.Aborted, 0, false},
		{"unheard of, 400", ec2fake.Fault{Code: "SomethingNew", Status: 400}, codes.Aborted, 0, false},
		{"unheard of, 403", ec2fake.Fault{Code: "SomethingNew", Status: 403}, codes.Aborted, 0, false},
		{"unheard of, 408", ec2fake.Fault{Code: "RequestTimeout", Status: 408}, codes.Unavailable, 0, false},
		{"unheard of, 409", ec2fake.Fault{Code: "SomethingNew", Status: 409}, codes.Aborted, 0, false},
		{"403 of something in between", ec2fake.Fault{Code: unknownErrorCode, Status: 403}, codes.Unavailable, 0, false},
		{"protected", ec2fake.Fault{Code: "OperationNotPermitted", Status: 400}, codes.FailedPrecondition, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, fake := connect(t, "")
			fake.Fail(signal, tt.fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if tt.fault.Hang {
				cancel()
				// The line is made before: without one nothing was sent.
				if _, err := p.State(t.Context(), machine); err != nil {
					t.Fatal(err)
				}
				ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
			}
			defer cancel()
			err := p.Reboot(ctx, machine, false)
			if status.Code(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
			var wait time.Duration
			for _, detail := range status.Convert(err).Details() {
				if info, ok := detail.(*errdetails.RetryInfo); ok {
					wait = info.GetRetryDelay().AsDuration()
				}
			}
			if wait != tt.wait {
				t.Errorf("retry after %s, want %s", wait, tt.wait)
			}
			if got := len(fake.Requests(signal)); got != 1 {
				t.Errorf("%d requests, want 1", got)
			}
			if got := fake.Instance(id).Reboots; (got == 1) != tt.effect {
				t.Errorf("%d reboots, effect %v", got, tt.effect)
			}
		})
	}
}

// A request that the caller gives up while it is at EC2 may have been carried out.
func TestAbandoned(t *testing.T) {
	p, fake := connect(t, "")
	if _, err := p.State(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fake.Hung = cancel
	fake.Fail("RebootInstances", ec2fake.Fault{Hang: true})
	if err := p.Reboot(ctx, machine, false); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
}

func TestCredentials(t *testing.T) {
	p, fake := connect(t, "token of a session")
	if err := p.Reboot(t.Context(), machine, false); err != nil {
		t.Fatal(err)
	}
	fake.ChangeAccount(func(a *ec2fake.Account) { a.Expired = true })
	if err := p.Reboot(t.Context(), machine, false); status.Code(err) != codes.Unauthenticated {
		t.Errorf("expired: %v, want Unauthenticated", err)
	}
	fake.ChangeAccount(func(a *ec2fake.Account) { a.Expired, a.Secret = false, "rotated" })
	if err := p.Reboot(t.Context(), machine, false); status.Code(err) != codes.Unauthenticated {
		t.Errorf("another secret: %v, want Unauthenticated", err)
	}
	if got := fake.Instance(id).Reboots; got != 1 {
		t.Errorf("%d reboots, want 1", got)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	none, err := New(t.Context(), Config{Region: "us-west-2", Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Reboot(t.Context(), machine, false); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no credentials: %v, want Unauthenticated", err)
	}
}

// Without a connection nothing was sent.
func TestUnreachable(t *testing.T) {
	connect(t, "")
	p, err := New(t.Context(), Config{Region: "us-west-2", Endpoint: "http://127.0.0.1:1"}) // a port that no test is given
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Reboot(t.Context(), machine, false); status.Code(err) != codes.Aborted {
		t.Errorf("no connection: %v, want Aborted", err)
	}
}

func TestMachines(t *testing.T) {
	p, fake := connect(t, "")
	for _, name := range []string{"", "gce://project/zone/name", "aws:///us-west-2a/", "aws:///us-west-2a/i-XYZ", "aws:///us-west-2a/fargate-ip-1"} {
		if err := p.Reboot(t.Context(), name, false); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("machine %q: %v, want FailedPrecondition", name, err)
		}
		if _, err := p.State(t.Context(), name); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("state of %q: %v, want FailedPrecondition", name, err)
		}
	}
	if len(fake.Requests("")) != 0 {
		t.Errorf("EC2 was asked: %v", fake.Requests(""))
	}
	if err := p.Reboot(t.Context(), "aws:///us-west-2a/i-00000000", false); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown instance: %v, want NotFound", err)
	}
	for _, tt := range []struct {
		state, checks string
		want          cloud.State
	}{
		{"running", "ok", cloud.Up},
		{"running", "initializing", cloud.NotUp},
		{"running", "impaired", cloud.NotUp},
		{"pending", "", cloud.NotUp},
		{"stopped", "", cloud.NotUp},
		{"shutting-down", "", cloud.NotUp},
		{"terminated", "", cloud.Gone},
	} {
		fake.Change(id, func(i *ec2fake.Instance) { i.State, i.Checks = tt.state, tt.checks })
		if got, err := p.State(t.Context(), machine); err != nil || got != tt.want {
			t.Errorf("%s, checks %s: %s, %v; want %s", tt.state, tt.checks, got, err, tt.want)
		}
	}
	if got, err := p.State(t.Context(), "aws:///us-west-2a/i-00000000"); err != nil || got != cloud.Gone {
		t.Errorf("an unknown instance is %s, %v; want Gone", got, err)
	}
	fake.Change(id, func(i *ec2fake.Instance) {
		i.DNS, i.IP, i.Further, i.Tags = "ip-10-0-0-7.us-west-2.compute.internal", "10.0.0.7", "ip-10-0-0-8.us-west-2.compute.internal", map[string]string{"cluster": "c1"}
	})
	want := cloud.Identity{
		Names: map[string][]string{PrivateDNSName: {"ip-10-0-0-7.us-west-2.compute.internal"}, InstanceID: {id}}, Tags: map[string]string{"cluster": "c1"},
	}
	if got, err := p.Identity(t.Context(), machine); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("identity %v, %v; want %v: no address, and no name of a further interface", got, err, want)
	}
	if one, err := p.Canonical("aws:///us-west-2b/" + id); err != nil || one != id {
		t.Errorf("with another zone it is machine %q, %v; want %q", one, err, id)
	}
	fake.Change(id, func(i *ec2fake.Instance) { i.State = "stopped" })
	if err := p.Reboot(t.Context(), machine, false); status.Code(err) != codes.Aborted {
		t.Errorf("a stopped instance: %v, want Aborted", err)
	}
	for _, force := range []bool{false, true} {
		if err := p.Terminate(t.Context(), machine, force); err != nil {
			t.Errorf("termination, force %v: %v", force, err)
		}
	}
	if got := fake.Instance(id); got.State != "shutting-down" {
		t.Errorf("after the termination it is %+v", got)
	}
}
