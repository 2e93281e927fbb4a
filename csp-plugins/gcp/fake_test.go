package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
)

// engine is a stand-in of the Compute Engine API that records its calls. It was written
// from the published description of the four methods that the plugin uses
// (https://cloud.google.com/compute/docs/reference/rest/v1/instances/get, .../reset,
// .../delete and .../zoneOperations/get), of request ids
// (https://cloud.google.com/compute/docs/api/request-ids) and of self-signed tokens
// (https://google.aip.dev/auth/4111). What it does not know, it refuses.
type engine struct {
	key      *rsa.PublicKey
	rebooted func(machine string)

	mu         sync.Mutex
	revoked    bool
	instances  map[string]*instance // by path
	operations map[string]*operation
	requests   map[string]string // operations by request id
	faults     []fault
	requestLog []entry
	pace       cloudtest.Pace
}

type instance struct {
	name, ip, hostname       string
	status                   string
	labels                   map[string]string
	reboots, terminations    int
	protected, recreateAfter bool
}

type operation struct {
	Name      string          `json:"name"`
	Kind      string          `json:"operationType"`
	Status    string          `json:"status"`
	ClientID  string          `json:"clientOperationId"`
	Error     *operationError `json:"error,omitempty"`
	HTTPError int             `json:"httpErrorStatusCode,omitempty"`
	left      int             // times that it is asked about until it is over
	then      func()
}

type operationError struct {
	Errors []problem `json:"errors"`
}

type problem struct {
	Code    string `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// fault is what goes wrong with the next reset.
type fault struct {
	status int
	reason string // empty: not an answer of the API
	cut    bool   // instead, the connection breaks
	hang   bool   // instead, there is no answer
	after  bool   // the reset takes effect first
}

// entry is one request that changes something.
type entry struct{ verb, request string }

const project = "gce://proj-1/us-central1-a/"

func newEngine(t *testing.T, rebooted func(string)) *engine {
	t.Helper()
	return &engine{
		key: &serviceAccountKey(t).PublicKey, rebooted: rebooted,
		instances: map[string]*instance{}, operations: map[string]*operation{}, requests: map[string]string{},
	}
}

func path(machine string) string {
	parts := strings.Split(strings.TrimPrefix(machine, "gce://"), "/")
	return fmt.Sprintf("projects/%s/zones/%s/instances/%s", parts[0], parts[1], parts[2])
}

func (e *engine) Add(name, address string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.instances[path(project+name)] = &instance{name: name, ip: address, status: "RUNNING"}
	return project + name
}

func (e *engine) Tag(machine, key, value string) {
	e.change(func() {
		i := e.instances[path(machine)]
		if i.labels == nil {
			i.labels = map[string]string{}
		}
		i.labels[key] = value
	})
}

func (e *engine) OperationCounts(machine string) (reboots, terminations int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.instances[path(machine)]
	return i.reboots, i.terminations
}

func (e *engine) Pace(p cloudtest.Pace) { e.change(func() { e.pace = p }) }
func (e *engine) Revoke()               { e.change(func() { e.revoked = true }) }

func (e *engine) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
}

// verify checks the token of a service account: signed with its key, for Compute
// Engine.
func (e *engine) verify(r *http.Request) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if !ok || len(parts) != 3 || e.revoked {
		return errors.New("the credentials are not valid")
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(e.key, crypto.SHA256, sum[:], signature); err != nil {
		return err
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var claims struct{ Iss, Scope string }
	if err := json.Unmarshal(text, &claims); err != nil {
		return err
	}
	if claims.Iss != account || claims.Scope != "https://www.googleapis.com/auth/compute" {
		return fmt.Errorf("the token is of %q for %q", claims.Iss, claims.Scope)
	}
	return nil
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	status, answer, then := e.handle(r)
	e.mu.Unlock()
	if then != nil {
		then()
	}
	switch body := answer.(type) {
	case fault:
		if body.hang {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	case string: // not an answer of the API
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func refuse(status int, reason, format string, args ...any) (int, any, func()) {
	message := fmt.Sprintf(format, args...)
	return status, map[string]any{"error": map[string]any{"code": status, "message": message, "errors": []problem{{Reason: reason, Message: message}}}}, nil
}

// handle carries a request out; then is done without the lock.
func (e *engine) handle(r *http.Request) (status int, answer any, then func()) {
	if err := e.verify(r); err != nil {
		return refuse(http.StatusUnauthorized, "authError", "%v", err)
	}
	route, ok := strings.CutPrefix(r.URL.Path, "/compute/v1/")
	what, verb := route, ""
	if parts := strings.Split(route, "/"); len(parts) == 7 {
		what, verb = strings.Join(parts[:6], "/"), parts[6]
	}
	switch {
	case !ok:
		return http.StatusNotFound, "<html>Not Found</html>", nil
	case r.Method == http.MethodGet && verb == "" && strings.Contains(what, "/operations/"):
		return e.serveOperation(what)
	case e.instances[what] == nil || e.instances[what].status == "":
		return refuse(http.StatusNotFound, "notFound", "The resource '%s' was not found", what)
	case r.Method == http.MethodGet && verb == "":
		i := e.instances[what]
		return http.StatusOK, map[string]any{
			"name": i.name, "status": i.status, "hostname": i.hostname, "labels": maps.Clone(i.labels), "networkInterfaces": []any{map[string]any{"networkIP": i.ip}},
		}, nil
	case r.Method == http.MethodPost && verb == "reset":
		return e.alter(what, "reset", r.URL.Query().Get("requestId"))
	case r.Method == http.MethodDelete && verb == "":
		return e.alter(what, "delete", r.URL.Query().Get("requestId"))
	}
	return http.StatusNotFound, "<html>Not Found</html>", nil
}

// alter carries out a reset or deletion, unless its request id is known.
func (e *engine) alter(what, verb, request string) (int, any, func()) {
	if id, err := uuid.Parse(request); err != nil || id == uuid.Nil {
		return refuse(http.StatusBadRequest, "invalid", "Invalid value for field 'requestId': '%s'.", request)
	}
	e.requestLog = append(e.requestLog, entry{verb, request})
	if known, ok := e.requests[request]; ok {
		return http.StatusOK, e.operations[known], nil
	}
	var f fault
	if len(e.faults) > 0 {
		f, e.faults = e.faults[0], e.faults[1:]
	}
	if f != (fault{}) && !f.after {
		return e.errorAnswer(f)
	}
	i := e.instances[what]
	switch {
	case i.status != "RUNNING" && verb == "reset":
		return refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", what)
	case i.protected && verb == "delete":
		return refuse(http.StatusBadRequest, "invalidResourceUsage", "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.")
	}
	o := &operation{Name: fmt.Sprintf("operation-%d", len(e.operations)+1), Kind: verb, Status: "RUNNING", ClientID: request, left: 2}
	e.operations[strings.Split(what, "/instances/")[0]+"/operations/"+o.Name] = o
	e.requests[request] = strings.Split(what, "/instances/")[0] + "/operations/" + o.Name
	then := e.effect(i, o, verb)
	if f.after {
		status, answer, _ := e.errorAnswer(f)
		return status, answer, then
	}
	return http.StatusOK, o, then
}

// effect does to an instance what an operation is about.
func (e *engine) effect(i *instance, o *operation, verb string) (then func()) {
	if verb == "reset" {
		i.reboots++
		return func() { e.rebooted(project + i.name) }
	}
	i.terminations++
	i.status = "STOPPING"
	o.then = func() {
		i.status = ""
		if i.recreateAfter {
			i.status = "RUNNING"
		}
	}
	return nil
}

func (e *engine) errorAnswer(f fault) (int, any, func()) {
	switch {
	case f.cut, f.hang:
		return 0, f, nil
	case f.reason == "":
		return f.status, "<html>so it is</html>", nil
	}
	return refuse(f.status, f.reason, "so it is")
}

// serveOperation answers about an operation, which goes on with it.
func (e *engine) serveOperation(what string) (int, any, func()) {
	o := e.operations[what]
	if o == nil || e.pace == cloudtest.Forgotten {
		return refuse(http.StatusNotFound, "notFound", "The resource '%s' was not found", what)
	}
	if o.left--; o.left > 0 || o.Status == "DONE" || e.pace == cloudtest.Held {
		return http.StatusOK, o, nil
	}
	o.Status = "DONE"
	if e.pace == cloudtest.Failing {
		o.HTTPError, o.Error = http.StatusServiceUnavailable, &operationError{[]problem{{Code: "INTERNAL_ERROR", Message: "the host did not answer"}}}
	} else if o.then != nil {
		o.then()
	}
	return http.StatusOK, o, nil
}
