package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
)

// oracle is a stand-in of OCI's Core Services and Work Requests APIs that records its
// calls. It was written from their published descriptions
// (https://docs.oracle.com/iaas/api/#/en/iaas/20160918/Instance/InstanceAction,
// .../GetInstance, .../TerminateInstance, .../VnicAttachment/ListVnicAttachments,
// .../Vnic/GetVnic and https://docs.oracle.com/iaas/api/#/en/workrequests/20160918/WorkRequest/GetWorkRequest)
// and from that of signatures
// (https://docs.oracle.com/iaas/Content/API/Concepts/signingrequests.htm). What it does
// not know, it refuses.
type oracle struct {
	key      *rsa.PublicKey
	rebooted func(machine string)

	mu        sync.Mutex
	revoked   bool
	instances map[string]*instance // by OCID
	work      map[string]*workRequest
	tokens    map[string]*workRequest // of retries
	faults    []fault
	requests  []string // actions
	pace      cloudtest.Pace
	noWork    bool // power actions have no work request
}

type instance struct {
	id, name, ip, state   string
	tags                  map[string]string
	reboots, terminations int
	polls                 int // while it was going
}

type workRequest struct {
	id, kind, status string
	left             int // times that it is asked about until it is over
	then             func()
}

// fault is what goes wrong with the next action.
type fault struct {
	status int
	code   string // empty: not an answer of OCI
	cut    bool   // instead, the connection breaks
	hang   bool   // instead, there is no answer
	after  bool   // the action takes effect first
}

const (
	ocids       = "ocid1.instance.oc1.phx."
	compartment = "ocid1.compartment.oc1..c1"
)

func newOracle(t *testing.T, rebooted func(string)) *oracle {
	t.Helper()
	return &oracle{
		key: &apiKey(t).PublicKey, rebooted: rebooted,
		instances: map[string]*instance{}, work: map[string]*workRequest{}, tokens: map[string]*workRequest{},
	}
}

func (o *oracle) Add(name, address string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := ocids + strings.ReplaceAll(name, "-", "")
	o.instances[id] = &instance{id: id, name: name, ip: address, state: "RUNNING", tags: map[string]string{}}
	return id
}

func (o *oracle) Tag(machine, key, value string) {
	o.change(func() { o.instances[machine].tags[key] = value })
}

func (o *oracle) OperationCounts(machine string) (reboots, terminations int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.instances[machine]
	return i.reboots, i.terminations
}

func (o *oracle) Pace(p cloudtest.Pace) { o.change(func() { o.pace = p }) }
func (o *oracle) Revoke()               { o.change(func() { o.revoked = true }) }

func (o *oracle) change(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// verify checks the signature of a request.
func (o *oracle) verify(r *http.Request, body []byte) error {
	fields, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Signature ")
	if !ok || o.revoked {
		return errors.New("the required information to complete authentication was not provided")
	}
	apiErr := map[string]string{}
	for field := range strings.SplitSeq(fields, ",") {
		key, value, _ := strings.Cut(field, "=")
		apiErr[key] = strings.Trim(value, `"`)
	}
	if apiErr["keyId"] != tenancy+"/"+user+"/"+fingerprint || apiErr["algorithm"] != "rsa-sha256" {
		return fmt.Errorf("the key is %q, by %q", apiErr["keyId"], apiErr["algorithm"])
	}
	if r.Method == http.MethodPost && !strings.Contains(apiErr["headers"], "x-content-sha256") {
		return errors.New("the body is not signed")
	}
	var lines []string
	for name := range strings.FieldsSeq(apiErr["headers"]) {
		value := r.Header.Get(name)
		switch name {
		case "(request-target)":
			value = strings.ToLower(r.Method) + " " + r.URL.RequestURI()
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		case "x-content-sha256":
			sum := sha256.Sum256(body)
			value = base64.StdEncoding.EncodeToString(sum[:])
		}
		lines = append(lines, name+": "+value)
	}
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	signature, err := base64.StdEncoding.DecodeString(apiErr["signature"])
	if err != nil {
		return err
	}
	return rsa.VerifyPKCS1v15(o.key, crypto.SHA256, sum[:], signature)
}

// answer is what a request is answered with; then is done without the lock.
type answer struct {
	status int
	body   any
	work   string
	then   func()
}

func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	o.mu.Lock()
	a := o.handle(r, body)
	o.mu.Unlock()
	if a.then != nil {
		a.then()
	}
	if a.work != "" {
		w.Header().Set("opc-work-request-id", a.work)
	}
	switch body := a.body.(type) {
	case fault:
		if body.hang {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	case string: // not an answer of OCI
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(body))
	case nil:
		w.WriteHeader(a.status)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_ = json.NewEncoder(w).Encode(a.body)
	}
}

func refuse(status int, code, format string, args ...any) answer {
	return answer{status: status, body: map[string]string{"code": code, "message": fmt.Sprintf(format, args...)}}
}

func (o *oracle) handle(r *http.Request, body []byte) answer {
	if err := o.verify(r, body); err != nil {
		return refuse(http.StatusUnauthorized, "NotAuthenticated", "%v", err)
	}
	route, ok := strings.CutPrefix(r.URL.Path, "/20160918/")
	kind, id, _ := strings.Cut(route, "/")
	switch {
	case !ok:
		return answer{status: http.StatusNotFound, body: "<html>Not Found</html>"}
	case kind == "workRequests" && r.Method == http.MethodGet:
		return o.serveWorkRequest(id)
	case kind == "vnicAttachments" && r.URL.Query().Get("compartmentId") == compartment:
		id := r.URL.Query().Get("instanceId")
		attached := func(state, vnic string) map[string]string {
			return map[string]string{
				"id": "a-" + vnic, "availabilityDomain": "ad1", "compartmentId": compartment, "instanceId": id,
				"lifecycleState": state, "timeCreated": "2026-01-02T03:04:05Z", "vnicId": vnic,
			}
		}
		return answer{status: http.StatusOK, body: []any{
			attached("ATTACHED", "further-"+id), attached("ATTACHED", "vnic-"+id), attached("DETACHED", "vnic-of-another"),
		}}
	case kind == "vnics" && strings.HasPrefix(id, "further-"):
		return answer{status: http.StatusOK, body: card(id, "10.9.9.9", "further", false)}
	case kind == "vnics" && o.instances[strings.TrimPrefix(id, "vnic-")] != nil:
		i := o.instances[strings.TrimPrefix(id, "vnic-")]
		return answer{status: http.StatusOK, body: card(id, i.ip, i.name, true)}
	case kind != "instances" || o.instances[id] == nil:
		return refuse(http.StatusNotFound, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
	case r.Method == http.MethodGet:
		return answer{status: http.StatusOK, body: o.shown(o.instances[id])}
	case r.Method == http.MethodPost:
		return o.act(o.instances[id], r.URL.Query().Get("action"), r.Header.Get("opc-retry-token"))
	case r.Method == http.MethodDelete:
		return o.act(o.instances[id], "TERMINATE", "")
	}
	return answer{status: http.StatusNotFound, body: "<html>Not Found</html>"}
}

// card is a network card as it is described.
func card(id, ip, hostname string, primary bool) any {
	return map[string]any{
		"id": id, "availabilityDomain": "ad1", "compartmentId": compartment, "lifecycleState": "AVAILABLE", "subnetId": "s",
		"timeCreated": "2026-01-02T03:04:05Z", "privateIp": ip, "hostnameLabel": hostname, "isPrimary": primary,
	}
}

// shown is an instance as it is described. One that is going is gone a while later.
func (o *oracle) shown(i *instance) any {
	if i.state == "TERMINATING" {
		if i.polls++; i.polls > 2 {
			i.state = "TERMINATED"
		}
	}
	return map[string]any{
		"id": i.id, "compartmentId": compartment, "availabilityDomain": "ad1", "region": "phx", "shape": "BM.GPU.H100.8",
		"timeCreated": "2026-01-02T03:04:05Z", "lifecycleState": i.state, "displayName": i.name, "freeformTags": maps.Clone(i.tags),
		"definedTags": map[string]any{"Operations": map[string]any{"CostCenter": "42"}},
	}
}

// act carries out an action, unless its retry token is known.
func (o *oracle) act(i *instance, action, token string) answer {
	o.requests = append(o.requests, action)
	if known := o.tokens[token]; known != nil {
		return o.taken(i, action, known, nil)
	}
	var f fault
	if len(o.faults) > 0 {
		f, o.faults = o.faults[0], o.faults[1:]
	}
	if f != (fault{}) && !f.after {
		return errorAnswer(f)
	}
	reset := action == "SOFTRESET" || action == "RESET"
	switch {
	case !reset && action != "TERMINATE":
		return refuse(http.StatusBadRequest, "InvalidParameter", "action %q", action)
	case reset && token == "":
		return refuse(http.StatusBadRequest, "MissingParameter", "opc-retry-token") // of this plugin more is wanted than of all
	case reset && i.state != "RUNNING", i.state == "TERMINATED", i.state == "TERMINATING":
		return refuse(http.StatusConflict, "IncorrectState", "The instance is in state %s.", i.state)
	}
	w := &workRequest{id: fmt.Sprintf("ocid1.coreservicesworkrequest.oc1.phx.w%d", len(o.work)+1), kind: action, status: "IN_PROGRESS", left: 2}
	o.work[w.id] = w
	var then func()
	if reset {
		i.reboots++
		o.tokens[token] = w
		then = func() { o.rebooted(i.id) }
	} else {
		i.terminations++
		i.state = "TERMINATING"
		w.then = func() { i.state = "TERMINATED" }
	}
	if f.after {
		a := errorAnswer(f)
		a.then = then
		return a
	}
	return o.taken(i, action, w, then)
}

// taken is the answer to an action that was taken.
func (o *oracle) taken(i *instance, action string, w *workRequest, then func()) answer {
	if action == "TERMINATE" {
		return answer{status: http.StatusNoContent, work: w.id, then: then}
	}
	a := answer{status: http.StatusOK, body: o.shown(i), work: w.id, then: then}
	if o.noWork {
		a.work = ""
	}
	return a
}

func errorAnswer(f fault) answer {
	switch {
	case f.cut, f.hang:
		return answer{body: f}
	case f.code == "":
		return answer{status: f.status, body: "<html>so it is</html>"}
	}
	return refuse(f.status, f.code, "so it is")
}

// serveWorkRequest answers about a work request, which goes on with it, and about its errors.
func (o *oracle) serveWorkRequest(id string) answer {
	id, errors := strings.CutSuffix(id, "/errors")
	w := o.work[id]
	switch {
	case w == nil || o.pace == cloudtest.Forgotten:
		return refuse(http.StatusNotFound, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
	case errors:
		return answer{status: http.StatusOK, body: []any{map[string]string{"code": "InternalError", "message": "the host did not answer", "timestamp": "2026-01-02T03:04:05Z"}}}
	}
	if w.left--; w.left <= 0 && w.status == "IN_PROGRESS" && o.pace != cloudtest.Held {
		w.status = "SUCCEEDED"
		if o.pace == cloudtest.Failing {
			w.status = "FAILED"
		} else if w.then != nil {
			w.then()
		}
	}
	return answer{status: http.StatusOK, body: map[string]any{
		"id": w.id, "operationType": w.kind, "status": w.status, "compartmentId": compartment, "resources": []any{},
		"percentComplete": 50, "timeAccepted": "2026-01-02T03:04:05Z",
	}}
}
