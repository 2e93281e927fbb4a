package conformance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// rack is the rack controller of the examples: machines that are reset and
// removed over HTTP, each request once per id.
type rack struct {
	mu       sync.Mutex
	machines map[string]*machine
	// requests are those that were taken, by the caller's id.
	requests map[string]request
	// busy is how many requests are turned away first, astray how many reach something
	// else that knows no such path, count how many were taken.
	busy, astray, count int
}

type machine struct {
	reboots, running int
	deleted          bool
}

type request struct{ machine, id string }

// off is how long a reset takes.
const off = 30 * time.Millisecond

// newRack makes a rack with machines and returns its URL.
func newRack(t *testing.T, names ...string) (*rack, string) {
	t.Helper()
	r := &rack{machines: map[string]*machine{}, requests: map[string]request{}}
	for _, name := range names {
		r.machines[name] = &machine{}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /machines/{name}", r.handle(func(m *machine, _ request) any {
		return map[string]bool{"on": m.running == 0}
	}))
	mux.HandleFunc("POST /machines/{name}", r.handle(r.once(r.reset)))
	mux.HandleFunc("DELETE /machines/{name}", r.handle(r.once(func(m *machine) { m.deleted = true })))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return r, server.URL
}

// handle finds the machine. A request that was taken is answered again even
// when its machine is gone.
func (r *rack) handle(do func(m *machine, asked request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		asked := request{machine: req.PathValue("name"), id: req.URL.Query().Get("id")}
		m, taken := r.machines[asked.machine], r.requests[asked.id]
		switch {
		case r.busy > 0:
			r.busy--
			w.WriteHeader(http.StatusTooManyRequests)
		case r.astray > 0:
			r.astray--
			http.Error(w, "<html>404 Not Found</html>", http.StatusNotFound)
		case m == nil, m.deleted && taken.machine != asked.machine:
			refuse(w, http.StatusNotFound, "no-such-machine")
		case taken.machine != "" && taken.machine != asked.machine:
			refuse(w, http.StatusConflict, "id-of-another-machine")
		default:
			_ = json.NewEncoder(w).Encode(do(m, asked))
		}
	}
}

// refuse answers with an error of the controller.
func refuse(w http.ResponseWriter, status int, word string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": word})
}

// once does something once per id.
func (r *rack) once(do func(m *machine)) func(*machine, request) any {
	return func(m *machine, asked request) any {
		taken, known := r.requests[asked.id]
		if !known {
			r.count++
			taken = request{machine: asked.machine, id: fmt.Sprintf("request-%d", r.count)}
			if asked.id != "" {
				r.requests[asked.id] = taken
			}
			do(m)
		}
		return map[string]string{"request": taken.id}
	}
}

// reset lets a machine come back after a while.
func (r *rack) reset(m *machine) {
	m.running++
	time.AfterFunc(off, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		m.running--
		m.reboots++
	})
}

func (r *rack) reboots(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machines[name].reboots
}

// taken is how many requests were taken.
func (r *rack) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
