package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/redfishfake"
)

const (
	machine = "node://gpu-1"
	id      = "System.Embedded.1"
)

// all are reset types as servers offer them.
var all = []string{"On", "ForceOff", "GracefulRestart", "ForceRestart", "Nmi"}

// connect makes a driver of a fake BMC with one machine; change changes what is
// configured of it.
func connect(t *testing.T, change func(*BMC)) (*Driver, *redfishfake.BMC) {
	t.Helper()
	fake := redfishfake.New(map[string]*redfishfake.System{id: {UUID: "4c4c4544-0042-3010-8051-b7c04f4e4e32", Power: "On", Offered: all, LastReset: "2026-11-20T10:00:00+01:00"}})
	server := httptest.NewTLSServer(fake)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "username"), "operator\n")
	write(t, filepath.Join(dir, "password"), "secret\n")
	ca := filepath.Join(dir, "ca.crt")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	b := BMC{Entry: bmc.Entry{Node: "gpu-1", Address: server.URL, Credentials: dir}, CAFile: ca}
	if change != nil {
		change(&b)
	}
	c := Default()
	c.BMCs = []BMC{b}
	d := New(c, clock.RealClock{})
	d.pause = time.Millisecond
	return d, fake
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What goes wrong at a BMC becomes the answer that states what was done; a signal
// is never repeated by the plugin itself.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		what   string // of the requests
		fault  redfishfake.Fault
		want   codes.Code
		signal int
		effect bool
	}{
		{"nothing", "", redfishfake.Fault{}, codes.OK, 1, true},
		{"overloaded", "reset", redfishfake.Fault{Status: 503, Message: "Base.1.8.ServiceTemporarilyUnavailable"}, codes.ResourceExhausted, 1, false},
		{"429", "reset", redfishfake.Fault{Status: 429}, codes.ResourceExhausted, 1, false},
		{"503 without a reason", "reset", redfishfake.Fault{Status: 503, Message: "Base.1.8.GeneralError"}, codes.Unavailable, 1, false},
		{"500", "reset", redfishfake.Fault{Status: 500, Message: "Base.1.8.InternalError"}, codes.Unavailable, 1, false},
		{"500 after it was done", "reset", redfishfake.Fault{Status: 500, After: true}, codes.Unavailable, 1, true},
		{"the connection breaks after it was done", "reset", redfishfake.Fault{After: true}, codes.Unavailable, 1, true},
		{"the connection breaks", "reset", redfishfake.Fault{}, codes.Unavailable, 1, false},
		{"no answer", "reset", redfishfake.Fault{Hang: true}, codes.DeadlineExceeded, 1, false},
		{"busy", "reset", redfishfake.Fault{Status: 409, Message: "Base.1.8.ResourceInUse"}, codes.Aborted, 1, false},
		{"not allowed", "reset", redfishfake.Fault{Status: 403, Message: "Base.1.8.InsufficientPrivilege"}, codes.PermissionDenied, 1, false},
		{"the session has ended", "reset", redfishfake.Fault{Status: 401, Message: "Base.1.8.NoValidSession"}, codes.Unauthenticated, 1, false},
		{"501 without a reason", "reset", redfishfake.Fault{Status: 501}, codes.Unavailable, 1, false},
		{"408 without a reason", "reset", redfishfake.Fault{Status: 408}, codes.Unavailable, 1, false},
		{"a message that is not known", "reset", redfishfake.Fault{Status: 400, Message: "Oem.1.0.Unheard"}, codes.Aborted, 1, false},
		{"a way that it does not know", "reset", redfishfake.Fault{Status: 400, Message: "Base.1.8.ActionParameterNotSupported"}, codes.OK, 2, true},
		{"a redirect of the signal", "reset", redfishfake.Fault{Status: 307, Location: "/redfish/v1/elsewhere"}, codes.Unavailable, 1, false},
		{"the system is not there yet", "look", redfishfake.Fault{Status: 404, Message: "Base.1.8.ResourceMissingAtURI"}, codes.Aborted, 0, false},
		{"500 to a question", "look", redfishfake.Fault{Status: 500}, codes.Aborted, 0, false},
		{"no answer to a question", "look", redfishfake.Fault{Hang: true}, codes.Aborted, 0, false},
		{"a question that is redirected to somebody else", "look", redfishfake.Fault{Status: 302, Location: "https://127.0.0.1:1/steal"}, codes.Aborted, 0, false},
		{"nonsense", "look", redfishfake.Fault{Status: 200, Body: "<html>"}, codes.Aborted, 0, false},
		{"an endless answer", "look", redfishfake.Fault{Status: 200, Body: `{"Id":"` + strings.Repeat("x", maxAnswer) + `"}`}, codes.Aborted, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, fake := connect(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.fault.Hang {
				tt.fault.Arrived = cancel
			}
			if tt.what != "" {
				fake.Fail(tt.what, tt.fault)
			}
			err := d.Reset(ctx, machine, false)
			if status.Code(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
			wait := time.Duration(0)
			for _, detail := range status.Convert(err).Details() {
				if info, ok := detail.(*errdetails.RetryInfo); ok {
					wait = info.GetRetryDelay().AsDuration()
				}
			}
			if (wait == retryAfter) != (tt.want == codes.ResourceExhausted) {
				t.Errorf("retry after %s", wait)
			}
			if got := fake.RequestCount("reset"); got != tt.signal {
				t.Errorf("%d signals, want %d", got, tt.signal)
			}
			if got := fake.System(id).Resets; (len(got) == 1) != tt.effect {
				t.Errorf("resets %v, effect %v", got, tt.effect)
			}
		})
	}
}

// Without a connection nothing was sent.
func TestUnreachable(t *testing.T) {
	d, _ := connect(t, func(b *BMC) { b.Address = "https://127.0.0.1:1" }) // a port that no test is given
	if err := d.Reset(t.Context(), machine, false); status.Code(err) != codes.Aborted {
		t.Errorf("no connection: %v, want Aborted", err)
	}
	if err := answered(context.DeadlineExceeded, false); status.Code(err) != codes.Aborted {
		t.Errorf("no connection for the signal: %v, want Aborted", err)
	}
}

func TestInspect(t *testing.T) {
	d, fake := connect(t, nil)
	got, err := d.Inspect(t.Context(), machine)
	want := bmc.Facts{UUID: "4c4c4544-0042-3010-8051-b7c04f4e4e32", Power: bmc.On, LastReset: "2026-11-20T09:00:00Z"}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for text, power := range map[string]bmc.Power{"Off": bmc.Off, "PoweringOn": bmc.Changing, "PoweringOff": bmc.Changing, "Paused": bmc.Changing, "Reset": bmc.Changing, "Unknown": bmc.Unknown, "": bmc.Unknown} {
		fake.Change(id, func(s *redfishfake.System) { s.Power, s.LastReset = text, "0001-01-01T00:00:00Z" })
		if got, err := d.Inspect(t.Context(), machine); err != nil || got.Power != power || got.LastReset != "" {
			t.Errorf("power %q: %+v, %v; want %q and no time", text, got, err, power)
		}
	}
	if _, err := d.Inspect(t.Context(), "node://other"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("an unknown machine: %v, want FailedPrecondition", err)
	}
}

// If a BMC has several ComputerSystems, the configuration names the machine's.
func TestSeveralSystems(t *testing.T) {
	fake := redfishfake.New(map[string]*redfishfake.System{"System_0": {Power: "On"}, "HGX_Baseboard_0": {Power: "On"}})
	server := httptest.NewTLSServer(fake)
	t.Cleanup(server.Close)
	pin := sha256.Sum256(server.Certificate().Raw)
	d, _ := connect(t, func(b *BMC) { b.Address, b.CAFile, b.Pin = server.URL, "", hex.EncodeToString(pin[:]) })
	err := d.Reset(t.Context(), machine, false)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "HGX_Baseboard_0, System_0") {
		t.Errorf("several: %v, want FailedPrecondition with their names", err)
	}
	b := d.bmcs[machine]
	b.System = "System_0"
	d.bmcs[machine] = b
	if err := d.Reset(t.Context(), machine, false); err != nil {
		t.Errorf("the named one: %v", err)
	}
	if fake.System("System_0").Resets == nil || fake.System("HGX_Baseboard_0").Resets != nil {
		t.Error("another system than the named one was reset")
	}
}

func TestChoose(t *testing.T) {
	order := []string{PowerCycle, ForceRestart, GracefulRestart}
	for _, tt := range []struct {
		name           string
		order          []string
		force, powerOn bool
		state          schemas.PowerState
		offered        []string
		want           []string
		refusal        codes.Code
		words          string
	}{
		{name: "those that are offered", order: order, state: "On", offered: all, want: []string{ForceRestart, GracefulRestart}},
		{name: "in the order of the configuration", order: order, state: "On", offered: []string{"ForceRestart", "PowerCycle"}, want: []string{PowerCycle, ForceRestart}},
		{name: "nothing is said of what is offered", order: order, state: "On", want: order},
		{name: "the power is not said", order: order, offered: all, want: []string{ForceRestart, GracefulRestart}},
		{name: "the power is not known", order: order, state: "Unknown", offered: all, want: []string{ForceRestart, GracefulRestart}},
		{name: "graceful", order: []string{GracefulRestart, ForceRestart}, state: "On", offered: all, want: []string{GracefulRestart, ForceRestart}},
		{name: "force waits for no operating system", order: []string{GracefulRestart, ForceRestart}, force: true, state: "On", offered: all, want: []string{ForceRestart}},
		{name: "force with nothing but graceful", order: []string{GracefulRestart}, force: true, state: "On", offered: all, refusal: codes.FailedPrecondition},
		{name: "none is offered", order: []string{FullPowerCycle}, state: "On", offered: all, refusal: codes.FailedPrecondition, words: "the plugin is configured for FullPowerCycle (resetTypes in its [[bmc]])"},
		{name: "off and on alone", order: order, state: "On", offered: []string{"On", "ForceOff", "Nmi"}, refusal: codes.FailedPrecondition, words: "reset it through csp-plugin-ipmi"},
		{name: "changing", order: order, state: "PoweringOn", offered: all, refusal: codes.Aborted, words: `"PoweringOn"`},
		{name: "in reset", order: order, state: "Reset", offered: all, refusal: codes.Aborted, words: `"Reset"`},
		{name: "off", order: order, state: "Off", offered: all, refusal: codes.Aborted, words: "powerOn"},
		{name: "off, to be switched on", order: order, powerOn: true, state: "Off", offered: all, want: []string{"On"}},
		{name: "off, to be switched on, and nothing is said", order: order, powerOn: true, state: "Off", want: []string{"On", "ForceOn"}},
		{name: "off, to be switched on by force", order: order, powerOn: true, state: "Off", offered: []string{"ForceOn"}, want: []string{"ForceOn"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var offered []schemas.ResetType
			for _, o := range tt.offered {
				offered = append(offered, schemas.ResetType(o))
			}
			found, err := choose(target{order: tt.order, force: tt.force, powerOn: tt.powerOn}, tt.state, offered)
			var got []string
			for _, way := range found {
				got = append(got, string(way))
			}
			if !slices.Equal(got, tt.want) || status.Code(err) != tt.refusal || tt.words != "" && !strings.Contains(fmt.Sprint(err), tt.words) {
				t.Errorf("%q, %v; want %q, %s %q", got, err, tt.want, tt.refusal, tt.words)
			}
		})
	}
}

// A BMC that makes a task of a reset is believed once the task has not failed.
func TestTasks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		states []string
		fault  *redfishfake.Fault
		want   codes.Code
		looks  int
	}{
		{"completed", []string{"Running", "Completed"}, nil, codes.OK, 2},
		{"still running", []string{"Running"}, nil, codes.OK, maxTaskPolls},
		{"failed", []string{"Running", "Exception"}, nil, codes.Unavailable, 2},
		{"refused in the end", []string{"Running"}, &redfishfake.Fault{Status: 400, Message: "Base.1.8.ActionParameterNotSupported"}, codes.Unavailable, 1},
		{"a monitor that may not be read", []string{"Running"}, &redfishfake.Fault{Status: 403, Message: "Base.1.8.InsufficientPrivilege"}, codes.Unavailable, 1},
		{"a monitor that wants other credentials", []string{"Running"}, &redfishfake.Fault{Status: 401}, codes.Unavailable, 1},
		{"a monitor that breaks", []string{"Running"}, &redfishfake.Fault{}, codes.OK, maxTaskPolls + 1}, // the HTTP client repeats a question
		{"a monitor that is gone", []string{"Running"}, &redfishfake.Fault{Status: 404}, codes.OK, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, fake := connect(t, nil)
			fake.Task = tt.states
			if tt.fault != nil {
				fake.Fail("task", *tt.fault)
			}
			if err := d.Reset(t.Context(), machine, false); status.Code(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if got := fake.RequestCount("task"); got != tt.looks {
				t.Errorf("%d looks at the task, want %d", got, tt.looks)
			}
			if got := fake.System(id).Resets; !slices.Equal(got, []string{ForceRestart}) {
				t.Errorf("resets %v", got)
			}
		})
	}
}

// Credentials are read for every call: one that is replaced needs no restart.
func TestCredentials(t *testing.T) {
	d, fake := connect(t, nil)
	dir := d.bmcs[machine].Credentials
	ask := func(what string, want codes.Code) {
		t.Helper()
		if _, err := d.Inspect(t.Context(), machine); status.Code(err) != want || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	ask("right", codes.OK)
	write(t, filepath.Join(dir, "password"), "another secret")
	ask("wrong", codes.Unauthenticated)
	if err := d.Reset(t.Context(), machine, false); status.Code(err) != codes.Unauthenticated || fake.RequestCount("reset") != 0 {
		t.Errorf("a signal with a wrong password: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "password")); err != nil {
		t.Fatal(err)
	}
	ask("none", codes.Unauthenticated)
	write(t, filepath.Join(dir, "password"), "secret")
	ask("right again", codes.OK)
}

func TestSessions(t *testing.T) {
	d, fake := connect(t, func(b *BMC) { b.Session = true })
	fake.SessionsOnly = true
	if err := d.Reset(t.Context(), machine, false); err != nil {
		t.Fatal(err)
	}
	fake.Fail("look", redfishfake.Fault{Status: http.StatusInternalServerError})
	if _, err := d.Inspect(t.Context(), machine); err == nil {
		t.Error("no error")
	}
	if logins, open := fake.Sessions(); logins != 2 || open != 0 {
		t.Errorf("%d logins and %d open sessions, want 2 and 0", logins, open)
	}
	write(t, filepath.Join(d.bmcs[machine].Credentials, "password"), "wrong")
	if _, err := d.Inspect(t.Context(), machine); status.Code(err) != codes.Unauthenticated {
		t.Errorf("wrong password: %v, want Unauthenticated", err)
	}
}

// A BMC is spoken to only under the certificate that is expected of it.
func TestCertificates(t *testing.T) {
	ask := func(what string, want codes.Code, change func(*BMC)) {
		t.Helper()
		d, fake := connect(t, change)
		if err := d.Reset(t.Context(), machine, false); status.Code(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
		if asked := fake.RequestCount("look") + fake.RequestCount("reset"); (asked > 0) != (want == codes.OK) {
			t.Errorf("%s: %d requests", what, asked)
		}
	}
	ask("the authorities of the system", codes.Aborted, func(b *BMC) { b.CAFile = "" })
	ask("another name", codes.Aborted, func(b *BMC) { b.ServerName = "bmc.invalid" })
	ask("the name in the certificate", codes.OK, func(b *BMC) { b.ServerName = "example.com" })
	ask("another pin", codes.Aborted, func(b *BMC) { b.CAFile, b.Pin = "", strings.Repeat("ab", 32) })
	ask("no authority in the file", codes.Aborted, func(b *BMC) { b.CAFile = filepath.Join(b.Credentials, "password") })
	ask("no file", codes.Aborted, func(b *BMC) { b.CAFile += "-none" })
}

// What a BMC answers is the BMC's: nothing of it may end the plugin.
func FuzzInspect(f *testing.F) {
	f.Add([]byte(`{"Id":"1","UUID":"x","PowerState":"On","LastResetTime":"2026-11-20T10:00:00Z","Actions":{"#ComputerSystem.Reset":{"target":"@evil/x","ResetType@Redfish.AllowableValues":["ForceRestart"]}}}`))
	f.Add([]byte(`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.0."}]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var system schemas.ComputerSystem
		if system.UnmarshalJSON(body) == nil {
			offered, _ := system.GetSupportedResetTypes()
			if ways, err := choose(target{order: resetTypes}, system.PowerState, offered); err == nil && powerOf(system.PowerState) == bmc.Off {
				t.Errorf("%s of a machine that is off", ways)
			}
			if at := instant(system.LastResetTime); at != "" && instant(at) != at {
				t.Errorf("%q is written as %q", at, instant(at))
			}
		}
		for _, code := range []int{200, 302, 400, 404, 503} {
			if status.Code(answered(schemas.ConstructError(code, body), true)) == codes.OK {
				t.Errorf("status %d is no error", code)
			}
		}
	})
}
