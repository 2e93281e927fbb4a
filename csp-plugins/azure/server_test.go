package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
)

// methods are those of the SDK's clients that a request is of.
var methods = []struct {
	verb string
	path *regexp.Regexp
	name string
}{
	{http.MethodGet, regexp.MustCompile(`/Microsoft\.Compute/virtualMachines/[^/]+$`), "VirtualMachinesClient.Get"},
	{http.MethodPost, regexp.MustCompile(`/Microsoft\.Compute/virtualMachines/[^/]+/restart$`), "VirtualMachinesClient.BeginRestart"},
	{http.MethodDelete, regexp.MustCompile(`/Microsoft\.Compute/virtualMachines/[^/]+$`), "VirtualMachinesClient.BeginDelete"},
	{http.MethodGet, regexp.MustCompile(`/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+$`), "VirtualMachineScaleSetVMsClient.Get"},
	{http.MethodPost, regexp.MustCompile(`/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+/restart$`), "VirtualMachineScaleSetVMsClient.BeginRestart"},
	{http.MethodPost, regexp.MustCompile(`/virtualMachineScaleSets/[^/]+/delete$`), "VirtualMachineScaleSetsClient.BeginDeleteInstances"},
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": "so it is"}})
}

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	wait := m.serve(w, r)
	then := m.then
	m.then = nil
	m.mu.Unlock()
	for _, do := range then {
		do()
	}
	if wait.hang {
		<-r.Context().Done()
	}
	if wait.cut || wait.hang {
		panic(http.ErrAbortHandler)
	}
}

// serve answers a request, but for a fault that has to be suffered without the lock.
func (m *manager) serve(w http.ResponseWriter, r *http.Request) (wait fault) {
	token := r.Header.Get("Authorization")
	_, operation, asked := strings.Cut(r.URL.Path, "/locations/westus/operations/")
	switch {
	case strings.HasPrefix(r.URL.Path, "/"+tenant+"/"):
		m.authorize(w, r)
		return fault{}
	case m.revoked || token != "Bearer "+testToken && token != "Bearer fake_token":
		refuse(w, http.StatusUnauthorized, "InvalidAuthenticationToken")
		return fault{}
	case asked && r.Method == http.MethodGet:
		m.serveOperation(w, operation)
		return fault{}
	}
	var f fault
	if len(m.faults) > 0 && r.Method != http.MethodGet {
		f, m.faults = m.faults[0], m.faults[1:]
	}
	if f == (fault{}) {
		m.dispatch(w, r)
		return f
	}
	if f.after {
		m.dispatch(&unheard{}, r)
	}
	if f.wait != "" {
		w.Header().Set("Retry-After", f.wait)
	}
	switch {
	case f.cut, f.hang:
	case f.code == "":
		http.Error(w, "<html>so it is</html>", f.status)
	default:
		refuse(w, f.status, f.code)
	}
	return f
}

// unheard is an answer that gets lost.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header {
	if u.header == nil {
		u.header = http.Header{}
	}
	return u.header
}
func (*unheard) Write(p []byte) (int, error) { return len(p), nil }
func (*unheard) WriteHeader(int)             {}

// dispatch hands a request to package fake, and makes of what was accepted an
// operation to be asked about.
func (m *manager) dispatch(w http.ResponseWriter, r *http.Request) {
	for _, method := range methods {
		if r.Method != method.verb || !method.path.MatchString(r.URL.Path) || !strings.HasPrefix(r.URL.Path, subscription+"/resourceGroups/rg/") {
			continue
		}
		before := len(m.requests)
		answer, err := m.machines.Do(r.Clone(context.WithValue(r.Context(), runtime.CtxAPINameKey{}, method.name)))
		if apiErr, ok := errors.AsType[*azcore.ResponseError](err); ok {
			refuse(w, apiErr.StatusCode, apiErr.ErrorCode)
			return
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		defer answer.Body.Close()
		if len(m.requests) > before {
			at := fmt.Sprintf("%s%s/providers/Microsoft.Compute/locations/westus/operations/%d", m.url, subscription, len(m.requests))
			w.Header().Set("Azure-AsyncOperation", at)
			w.Header().Set("Location", at+"/result")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
		return
	}
	refuse(w, http.StatusNotFound, "InvalidResourceType")
}

// serveOperation answers about an operation, which goes on with it.
func (m *manager) serveOperation(w http.ResponseWriter, id string) {
	id, result := strings.CutSuffix(id, "/result")
	o := m.operations[id]
	if o == nil || m.pace == cloudtest.Forgotten {
		refuse(w, http.StatusNotFound, "NotFound")
		return
	}
	if result {
		w.WriteHeader(http.StatusOK)
		return
	}
	answer := map[string]any{"name": id}
	if o.left--; o.left <= 0 && o.status == "InProgress" && m.pace != cloudtest.Held {
		o.status = "Succeeded"
		if m.pace == cloudtest.Failing {
			o.status = "Failed"
		} else {
			o.then()
		}
	}
	if answer["status"] = o.status; o.status == "Failed" {
		answer["error"] = map[string]string{"code": "InternalExecutionError", "message": "the host did not answer"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// authorize gives a token for a client's secret.
func (m *manager) authorize(w http.ResponseWriter, r *http.Request) {
	at := m.url + "/" + tenant
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		_ = json.NewEncoder(w).Encode(map[string]string{
			"authorization_endpoint": at + "/oauth2/v2.0/authorize", "token_endpoint": at + "/oauth2/v2.0/token", "issuer": at + "/v2.0",
		})
	case r.FormValue("client_id") != client || r.FormValue("client_secret") != secret || m.revoked || !strings.Contains(r.FormValue("scope"), "/.default"):
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client", "error_description": "so it is"})
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": testToken})
	}
}
