package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// server is the probes' and metrics' listener.
type server struct {
	address string // empty: none
	http    *http.Server
	done    chan error
}

// pages are what a process serves about itself.
type pages struct {
	metrics   prometheus.Gatherer
	readiness func() Readiness
	log       *slog.Logger
}

// serve starts /metrics, /healthz and /readyz. It comes before everything
// else, so that a slow database is a pod that is not ready, not a dead one.
func (p pages) serve(ctx context.Context, address string) (*server, error) {
	if address == "" || address == "off" {
		return &server{}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for probes and metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", p.answerReady)
	s := &server{
		address: listener.Addr().String(),
		http:    &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		done:    make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(listener) }()
	p.log.Info("probe and metrics server started", "address", s.address)
	return s, nil
}

// close ends the server; a scrape in progress has a second.
func (s *server) close() error {
	if s.http == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(s.http.Close())
	}
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving probes and metrics: %w", err)
	}
	return nil
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready   bool         `json:"ready"`
	Service string       `json:"service"`
	Version string       `json:"version"`
	Detail  string       `json:"detail,omitempty"`
	Tasks   []TaskState  `json:"tasks"`
	Checks  []CheckState `json:"checks"`
}

// TaskState is one named task: running, done or failed.
type TaskState struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
}

// CheckState is one readiness check.
type CheckState struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// readiness asks every check; ready means built, not stopping, no task failed
// and every check ok.
func (d *Daemon) readiness() Readiness {
	d.mu.Lock()
	r := Readiness{Ready: d.built, Service: d.Name, Version: d.Version, Tasks: []TaskState{}, Checks: []CheckState{}}
	if !d.built {
		r.Detail = "starting"
	} else if d.ctx.Err() != nil {
		r.Ready, r.Detail = false, "stopping"
	}
	for _, t := range d.named {
		state := TaskState{Name: t.name, State: t.state}
		if t.err != nil {
			r.Ready, state.Error = false, t.err.Error()
		}
		r.Tasks = append(r.Tasks, state)
	}
	checks := d.checks
	d.mu.Unlock()
	// The checks run without the lock: they are the service's code.
	for _, c := range checks {
		ok, detail := c.probe()
		r.Ready = r.Ready && ok
		r.Checks = append(r.Checks, CheckState{Name: c.name, OK: ok, Detail: detail})
	}
	return r
}

func (p pages) answerReady(w http.ResponseWriter, _ *http.Request) {
	r := p.readiness()
	w.Header().Set("Content-Type", "application/json")
	if !r.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if err := json.NewEncoder(w).Encode(r); err != nil {
		p.log.Debug("answering /readyz failed", "error", err)
	}
}
