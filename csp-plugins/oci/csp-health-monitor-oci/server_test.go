package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// server is a stand-in of the two operations of OCI's Core Services API on maintenance
// events that keeps a log of what was asked. It was written from their published descriptions:
// https://docs.oracle.com/en-us/iaas/api/#/en/iaas/20160918/InstanceMaintenanceEvent/ListInstanceMaintenanceEvents
// https://docs.oracle.com/en-us/iaas/api/#/en/iaas/20160918/InstanceMaintenanceEvent/GetInstanceMaintenanceEvent
// and of pages and errors from
// https://docs.oracle.com/en-us/iaas/Content/API/Concepts/usingapi.htm
type server struct {
	url string

	mu        sync.Mutex
	instances map[string]string // display names by OCID
	events    []event
	unlisted  map[string]bool // known by id alone
	denied    bool            // events can be listed and not got
	page      int             // items of a page at most; zero is what is asked for
	faults    map[string][]fault
	requests  []string // operation and page of every request that was not refused
}

// event is one as the API writes it.
type event map[string]any

// fault is what goes wrong with a request; without a status the connection is cut in
// the middle of the answer.
type fault int

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{faults: map[string][]fault{}, unlisted: map[string]bool{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

const root = "/20160918/instanceMaintenanceEvents"

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, one := strings.CutPrefix(r.URL.Path, root+"/")
	instance, described := strings.CutPrefix(r.URL.Path, "/20160918/instances/")
	switch {
	case !strings.HasPrefix(r.Header.Get("Authorization"), `Signature version="1"`):
		refuse(w, http.StatusUnauthorized)
	case r.Method == http.MethodGet && r.URL.Path == root:
		s.list(w, r)
	case r.Method == http.MethodGet && one:
		s.get(w, id)
	case r.Method == http.MethodGet && described:
		s.describe(w, instance)
	default:
		refuse(w, http.StatusNotFound)
	}
}

// describe answers about an instance
// (https://docs.oracle.com/en-us/iaas/api/#/en/iaas/20160918/Instance/GetInstance).
func (s *server) describe(w http.ResponseWriter, id string) {
	if s.trouble(w, "instance", 1) {
		return
	}
	name, known := s.instances[id]
	if !known {
		refuse(w, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{
		"id": id, "compartmentId": "c", "availabilityDomain": "ad1", "region": "phx", "shape": "BM.GPU.H100.8",
		"timeCreated": "2026-01-02T03:04:05Z", "lifecycleState": "RUNNING", "displayName": name,
	})
}

// trouble answers with the next fault of an operation's page; otherwise it logs it.
func (s *server) trouble(w http.ResponseWriter, operation string, page int) bool {
	key := fmt.Sprintf("%s %d", operation, page)
	if list := s.faults[key]; len(list) > 0 {
		s.faults[key] = list[1:]
		refuse(w, int(list[0]))
		return true
	}
	s.requests = append(s.requests, key)
	return false
}

func refuse(w http.ResponseWriter, status int) {
	if status == 0 {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, `[{"id":"ocid1.instancemaintenanceevent.oc1.phx.a","instanceId":"`)
		panic(http.ErrAbortHandler)
	}
	code := map[int]string{401: "NotAuthenticated", 404: "NotAuthorizedOrNotFound", 429: "TooManyRequests", 500: "InternalServerError", 400: "InvalidParameter"}[status]
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":%q,"message":"so it is"}`, code)
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	var list []event
	for _, e := range s.events {
		if e["compartmentId"] == r.FormValue("compartmentId") && !s.unlisted[e["id"].(string)] {
			list = append(list, e)
		}
	}
	size, err := strconv.Atoi(r.FormValue("limit"))
	offset := 0
	if token := r.FormValue("page"); token != "" {
		offset, _ = strconv.Atoi(strings.TrimPrefix(token, "t"))
	}
	if err != nil || size < 1 || size > 1000 || r.FormValue("compartmentId") == "" || offset > len(list) {
		refuse(w, http.StatusBadRequest)
		return
	}
	if s.page != 0 {
		size = min(size, s.page)
	}
	if s.trouble(w, "list", offset/size+1) {
		return
	}
	end := min(offset+size, len(list))
	if end < len(list) {
		w.Header().Set("opc-next-page", fmt.Sprint("t", end))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(append([]event{}, list[offset:end]...))
}

func (s *server) get(w http.ResponseWriter, id string) {
	if s.trouble(w, "get", 1) {
		return
	}
	i := slices.IndexFunc(s.events, func(e event) bool { return e["id"] == id })
	if i < 0 || s.denied {
		refuse(w, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.events[i])
}
