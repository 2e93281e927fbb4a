package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// rack simulates the controller of the machine's power, which the plugin of examples/go-plugin
// calls. It records the ids of requests, and obeys each id once.
type rack struct {
	machine *machine
	log     func(string, ...any)

	mu   sync.Mutex
	seen map[string]bool // ids
	off  bool
}

// serve answers until ctx ends.
func (r *rack) serve(ctx context.Context) error {
	r.seen = map[string]bool{}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "80"))
	if err != nil {
		return fmt.Errorf("serving the rack controller: %w", err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /machines/{name}", func(w http.ResponseWriter, q *http.Request) { r.power(ctx, w, q) })
	routes.HandleFunc("GET /machines/{name}", r.serveState)
	server := &http.Server{Handler: routes}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() { _ = server.Serve(listener) }() // until it is closed
	return nil
}

// power has the machine reboot, once for each id.
func (r *rack) power(ctx context.Context, w http.ResponseWriter, q *http.Request) {
	id := q.URL.Query().Get("id")
	if q.PathValue("name") != nodeName || id == "" {
		http.Error(w, "no such machine, or no id", http.StatusNotFound)
		return
	}
	r.mu.Lock()
	first := !r.seen[id]
	r.seen[id] = true
	r.off = r.off || first
	r.mu.Unlock()
	if first {
		go func() {
			if err := r.machine.reboot(ctx); err != nil {
				r.log("rebooting the machine: %v", err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.off = false
		}()
	}
	r.answer(w, id)
}

// serveState whether the machine is on.
func (r *rack) serveState(w http.ResponseWriter, q *http.Request) {
	if q.PathValue("name") != nodeName {
		http.Error(w, "no such machine", http.StatusNotFound)
		return
	}
	r.answer(w, "")
}

func (r *rack) answer(w http.ResponseWriter, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"request": id, "on": !r.off}) // who lost it asks again
}
