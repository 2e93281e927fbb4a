// Package ec2fake is a stand-in of the EC2 Query API for tests: it knows four
// actions, keeps records of everything that was asked, verifies every signature,
// and refuses what it does not know, as EC2 does (source: the Amazon EC2 API
// reference, "Query requests" and "Error codes").
package ec2fake

import (
	"crypto/hmac"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Version of the API that is served.
const Version = "2016-11-15"

// skew is how old a signature may be.
const skew = 5 * time.Minute

// Account is who may call.
type Account struct {
	AccessKey, Secret string
	// SessionToken goes with temporary credentials; empty for lasting ones.
	SessionToken string
	// Expired makes EC2 report that the token has run out.
	Expired bool
	// Denied actions are answered with UnauthorizedOperation.
	Denied []string
}

// Instance is one machine.
type Instance struct {
	State string
	// Checks is the status of both checks: ok, initializing or impaired.
	Checks              string
	Reboots, Terminates int
	Protected           bool
	// DNS and IP are its private name and address.
	DNS, IP string
	// Further is the private name of a second network interface.
	Further string
	Tags    map[string]string
}

// Fault is what goes wrong with a request.
type Fault struct {
	// Code and Status are the answer; without a code the connection is dropped.
	Code   string
	Status int
	// After carries the request out first, so that only the answer is lost.
	After bool
	// Hang answers nothing until the caller gives up.
	Hang bool
}

// Entry is one request in the recorded calls.
type Entry struct {
	Action, Instance string
	// Code is the error it was answered with; empty is success.
	Code string
	// Done: it changed the instance.
	Done bool
}

// Cloud is one account's EC2 in one region.
type Cloud struct {
	Region string
	Now    func() time.Time
	// Rebooted hears, without any lock, of every reboot.
	Rebooted func(id string)
	// Hung hears of a request that hangs.
	Hung func()

	mu        sync.Mutex
	account   Account
	instances map[string]*Instance
	faults    map[string][]Fault // by action
	requests  []Entry
}

// New makes a cloud with running instances.
func New(a Account, ids ...string) *Cloud {
	c := &Cloud{Region: "us-west-2", Now: time.Now, account: a, instances: map[string]*Instance{}, faults: map[string][]Fault{}} //nolint:forbidigo // the default of an injected clock, in a test's server
	for _, id := range ids {
		c.instances[id] = &Instance{State: "running", Checks: "ok"}
	}
	return c
}

// Fail makes the next requests of an action go wrong, one after the other.
func (c *Cloud) Fail(action string, faults ...Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[action] = append(c.faults[action], faults...)
}

// Change changes an instance.
func (c *Cloud) Change(id string, change func(*Instance)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.instances[id])
}

// Add adds a running instance.
func (c *Cloud) Add(id string, change func(*Instance)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[id] = &Instance{State: "running", Checks: "ok"}
	change(c.instances[id])
}

// ChangeAccount changes who may call.
func (c *Cloud) ChangeAccount(change func(*Account)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.account)
}

// Instance is an instance as it is now.
func (c *Cloud) Instance(id string) Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.instances[id]
}

// Requests are all requests of an action; empty means of any.
func (c *Cloud) Requests(action string) []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Entry
	for _, e := range c.requests {
		if action == "" || e.Action == action {
			out = append(out, e)
		}
	}
	return out
}

// refusal is an error of EC2.
type refusal struct {
	status        int
	code, message string
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// ServeHTTP answers one Query request.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e := Entry{}
	fault, answer, refused := c.handle(r, body, &e)
	if refused != nil {
		e.Code = refused.code
	}
	c.mu.Lock()
	c.requests = append(c.requests, e)
	c.mu.Unlock()
	if e.Done && e.Action == "RebootInstances" && c.Rebooted != nil {
		c.Rebooted(e.Instance)
	}
	switch {
	case fault.Hang:
		if c.Hung != nil {
			c.Hung()
		}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case fault != (Fault{}) && fault.Code == "":
		panic(http.ErrAbortHandler) // the connection is dropped
	case refused != nil:
		answerError(w, refused)
	default:
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		_ = xml.NewEncoder(w).Encode(answer)
	}
}

// handle checks a request and carries it out; e is its line in the recorded calls.
func (c *Cloud) handle(r *http.Request, body []byte, e *Entry) (Fault, any, *refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	form := r.URL.Query()
	if r.Method == http.MethodPost {
		posted, err := url.ParseQuery(string(body))
		if err != nil {
			return Fault{}, nil, refuse(http.StatusBadRequest, "MalformedQueryString", "%v", err)
		}
		form = posted
	}
	e.Action = form.Get("Action")
	if refused := c.authenticate(r, body); refused != nil {
		return Fault{}, nil, refused
	}
	act, refused := c.check(form, e)
	if refused != nil {
		return Fault{}, nil, refused
	}
	var fault Fault
	if list := c.faults[e.Action]; len(list) > 0 {
		fault, c.faults[e.Action] = list[0], list[1:]
	}
	if fault != (Fault{}) && !fault.After {
		return fault, nil, refuse(fault.Status, fault.Code, "so it is")
	}
	answer, refused := act(form, e)
	if refused == nil && fault.After {
		refused = refuse(fault.Status, fault.Code, "so it is")
	}
	return fault, answer, refused
}

// authenticate verifies who calls and that the request is whole and new.
func (c *Cloud) authenticate(r *http.Request, body []byte) *refusal {
	a, err := parseAuthorization(r.Header.Get("Authorization"))
	if err != nil {
		return refuse(http.StatusBadRequest, "MissingAuthenticationToken", "%v", err)
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	switch {
	case err != nil || a.day != at.Format("20060102"):
		return refuse(http.StatusBadRequest, "IncompleteSignature", "the date is not that of the credential")
	case at.Before(c.Now().Add(-skew)) || at.After(c.Now().Add(skew)):
		return refuse(http.StatusBadRequest, "RequestExpired", "Request has expired.")
	case a.access != c.account.AccessKey:
		return refuse(http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials")
	case a.service != "ec2" || a.region != c.Region:
		return refuse(http.StatusForbidden, "SignatureDoesNotMatch", "Credential should be scoped to ec2 in %s", c.Region)
	case !slices.Contains(a.signed, "host") || !slices.Contains(a.signed, "x-amz-date"):
		return refuse(http.StatusBadRequest, "IncompleteSignature", "host and x-amz-date must be signed")
	case c.account.SessionToken != "" && (r.Header.Get("X-Amz-Security-Token") != c.account.SessionToken || !slices.Contains(a.signed, "x-amz-security-token")):
		return refuse(http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials")
	case !hmac.Equal([]byte(signature(r, body, a, c.account.Secret)), []byte(a.signature)):
		return refuse(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	case c.account.Expired:
		return refuse(http.StatusBadRequest, "RequestExpired", "Request has expired.")
	}
	return nil
}

// action carries out a request.
type action func(form url.Values, e *Entry) (any, *refusal)

// check refuses unknown versions, actions, parameters and instances.
func (c *Cloud) check(form url.Values, e *Entry) (action, *refusal) {
	known := map[string]struct {
		act        action
		parameters []string
	}{
		"DescribeInstanceStatus": {c.describe, []string{"IncludeAllInstances"}},
		"DescribeInstances":      {c.instancesSet, nil},
		"RebootInstances":        {c.reboot, nil},
		"TerminateInstances":     {c.terminate, []string{"SkipOsShutdown", "Force"}},
	}
	if got := form.Get("Version"); got != Version {
		return nil, refuse(http.StatusBadRequest, "NoSuchVersion", "The requested version (%s) of service AmazonEC2 does not exist", got)
	}
	one, ok := known[e.Action]
	if !ok {
		return nil, refuse(http.StatusBadRequest, "InvalidAction", "The action %s is not valid for this web service.", e.Action)
	}
	for name, values := range form {
		if !slices.Contains(append([]string{"Action", "Version", "InstanceId.1"}, one.parameters...), name) || len(values) != 1 {
			return nil, refuse(http.StatusBadRequest, "UnknownParameter", "The parameter %s is not recognized", name)
		}
	}
	if slices.Contains(c.account.Denied, e.Action) {
		return nil, refuse(http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation.")
	}
	e.Instance = form.Get("InstanceId.1")
	switch {
	case e.Instance == "":
		return nil, refuse(http.StatusBadRequest, "MissingParameter", "The request must contain the parameter InstanceId")
	case !strings.HasPrefix(e.Instance, "i-"):
		return nil, refuse(http.StatusBadRequest, "InvalidInstanceID.Malformed", "Invalid id: %q", e.Instance)
	case c.instances[e.Instance] == nil:
		return nil, refuse(http.StatusBadRequest, "InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", e.Instance)
	}
	return one.act, nil
}
