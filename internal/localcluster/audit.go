package localcluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Request is what the API server's audit reports about one request that it answered.
type Request struct {
	// Account is the name of the service account that asked.
	Account string
	// Verb, Group, Resource (with the subresource behind a slash), Namespace and Name are
	// those that a rule of RBAC has.
	Verb, Group, Resource, Namespace, Name string
	// Code is the status of the answer, Message its text if it is a refusal.
	Code    int
	Message string
}

// LostRace reports whether the object was no longer the one that was to be changed: it
// had another version or, for a JSON patch, other values where the patch tests.
func (r Request) LostRace() bool {
	return r.Code == http.StatusConflict || r.Code == http.StatusUnprocessableEntity && r.Verb == "patch" && strings.Contains(r.Message, "due to an error in our request")
}

// String is the request as a person reads it.
func (r Request) String() string {
	return fmt.Sprintf("%s: %s %s.%s %s/%s: %d %s", r.Account, r.Verb, r.Resource, r.Group, r.Namespace, r.Name, r.Code, r.Message)
}

// auditPolicy logs what the service accounts of one namespace ask, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:%s"], omitManagedFields: true}
  - {level: None}
`

// auditFlags write the audit's policy and return the flags that follow it.
func (c *Cluster) auditFlags() ([]string, error) {
	if c.options.AuditNamespace == "" {
		return nil, nil
	}
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, c.options.AuditNamespace), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit's policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.auditLog()}, nil
}

func (c *Cluster) auditLog() string { return filepath.Join(c.dir, "audit.log") }

// Requests are the answered requests of the namespace that Options name, oldest first.
// A watch is there twice, at its begin and its end.
func (c *Cluster) Requests() ([]Request, error) {
	log, err := os.Open(c.auditLog())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit: %w", err)
	}
	defer log.Close()
	var out []Request
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.ObjectRef.Resource == "" {
			continue // half a line of a server that was killed, or no request for objects
		}
		out = append(out, e.request())
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the audit: %w", err)
	}
	return out, nil
}

// auditEvent is the part of an audit's line that is read.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

func (a auditEvent) request() Request {
	resource := a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		resource += "/" + a.ObjectRef.Subresource
	}
	return Request{
		Account: a.User.Username[strings.LastIndex(a.User.Username, ":")+1:], Verb: a.Verb, Group: a.ObjectRef.APIGroup, Resource: resource,
		Namespace: a.ObjectRef.Namespace, Name: a.ObjectRef.Name, Code: a.ResponseStatus.Code, Message: a.ResponseStatus.Message,
	}
}
