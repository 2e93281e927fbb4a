package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// server is a stand-in of instances.aggregatedList of Compute Engine and of
// entries.list of Cloud Logging that keeps a log of what was asked. It was written
// from their published descriptions:
// https://cloud.google.com/compute/docs/reference/rest/v1/instances/aggregatedList
// https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
type server struct {
	url string

	mu        sync.Mutex
	instances []instance
	lines     []logLine
	warning   string // of zone-b
	page      int    // items of a page at most; zero is what is asked for
	faults    map[string][]fault
	requests  []string // operation and page of every request that was not refused
	filters   []string // of the log
}

type instance struct {
	id          uint64
	name        string
	status      string // RUNNING if empty
	started     string
	maintenance map[string]any
}

type logLine struct {
	at, insertID, method, text string
	operation                  string
	instance                   uint64
	name                       string
	metadata                   map[string]any
	payload                    any // instead of the fields above
}

// fault is what goes wrong with a request; without a status the connection is cut in
// the middle of the answer.
type fault int

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{faults: map[string][]fault{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/compute/v1/projects/p/aggregated/instances":
		s.list(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/v2/entries:list":
		s.entries(w, r)
	default:
		refuse(w, http.StatusNotFound)
	}
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
		_, _ = io.WriteString(w, `{"items":{"zones/zone-a":{"instances":[{"id":"7","name":"`)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":"so it is","status":"SO_IT_IS"}}`, status)
}

// cut is the part of a list that a token and a size ask for.
func cut[T any](s *server, list []T, token string, size int) (part []T, next string, page int, ok bool) {
	offset := 0
	if token != "" {
		var err error
		if offset, err = strconv.Atoi(strings.TrimPrefix(token, "t")); err != nil || offset >= len(list) {
			return nil, "", 0, false
		}
	}
	if s.page != 0 {
		size = min(size, s.page)
	}
	end := min(offset+size, len(list))
	if end < len(list) {
		next = fmt.Sprint("t", end)
	}
	return list[offset:end], next, offset/size + 1, true
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.FormValue("maxResults"))
	part, next, page, ok := cut(s, s.instances, r.FormValue("pageToken"), size)
	if err != nil || size > 500 || !ok {
		refuse(w, http.StatusBadRequest)
		return
	}
	if s.trouble(w, "instances", page) {
		return
	}
	list := []any{}
	for _, i := range part {
		one := map[string]any{
			"id": fmt.Sprint(i.id), "name": i.name, "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/zone-a",
			"status": "RUNNING", "scheduling": map[string]any{"onHostMaintenance": "TERMINATE"}, "lastStartTimestamp": i.started,
		}
		if i.status != "" {
			one["status"] = i.status
		}
		if i.maintenance != nil {
			one["resourceStatus"] = map[string]any{"upcomingMaintenance": i.maintenance, "physicalHost": "/b/s/h"}
		}
		list = append(list, one)
	}
	warning := "NO_RESULTS_ON_PAGE"
	if s.warning != "" {
		warning = s.warning
	}
	answer(w, map[string]any{"nextPageToken": next, "items": map[string]any{
		"zones/zone-a": map[string]any{"instances": list},
		"zones/zone-b": map[string]any{"warning": map[string]any{"code": warning, "message": "m"}},
	}})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// bounds are the times of a filter of the log.
var bounds = regexp.MustCompile(`^logName="projects/p/logs/cloudaudit\.googleapis\.com%2Fsystem_event" AND protoPayload\.methodName=\("([^)]*)"\)(?: AND timestamp>="([^"]*)" AND timestamp<="([^"]*)")?$`)

func (s *server) entries(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ResourceNames   []string
		Filter, OrderBy string
		PageToken       string
		PageSize        int
	}
	err := json.NewDecoder(r.Body).Decode(&q)
	between := bounds.FindStringSubmatch(q.Filter)
	if err != nil || between == nil || q.PageSize < 1 || q.PageSize > 1000 || !slices.Equal(q.ResourceNames, []string{"projects/p"}) {
		refuse(w, http.StatusBadRequest)
		return
	}
	s.filters = append(s.filters, q.Filter)
	methods := strings.Split(between[1], `" OR "`)
	var list []any
	for _, l := range s.lines {
		if (between[2] == "" || l.at >= between[2] && l.at <= between[3]) && slices.Contains(methods, l.method) {
			list = append(list, l.json())
		}
	}
	part, next, page, ok := cut(s, list, q.PageToken, q.PageSize)
	if !ok {
		refuse(w, http.StatusBadRequest)
		return
	}
	if !s.trouble(w, "entries", page) {
		answer(w, map[string]any{"entries": part, "nextPageToken": next})
	}
}

func (l logLine) json() any {
	payload := l.payload
	if payload == nil {
		audit := map[string]any{
			"@type": "type.googleapis.com/google.cloud.audit.AuditLog", "methodName": l.method, "serviceName": "compute.googleapis.com",
			"resourceName": "projects/p/zones/zone-a/instances/" + l.name, "status": map[string]any{"message": l.text},
		}
		if l.metadata != nil {
			audit["metadata"] = l.metadata
		}
		payload = audit
	}
	out := map[string]any{
		"insertId": l.insertID, "timestamp": l.at, "protoPayload": payload,
		"resource": map[string]any{"type": "gce_instance", "labels": map[string]any{"instance_id": fmt.Sprint(l.instance), "zone": "zone-a", "project_id": "p"}},
	}
	if l.operation != "" {
		out["operation"] = map[string]any{"id": l.operation, "producer": l.method}
	}
	return out
}
