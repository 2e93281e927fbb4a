package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Gate is a line between the services and the API server on which watches can
// be made late: caches go stale while reads and writes go through at once.
type Gate struct {
	url    string
	target *url.URL
	server *http.Server
	served chan struct{}

	mu      sync.Mutex
	late    time.Duration
	changed chan struct{}
}

// startGate serves the API server of a configuration on a free local port, with
// that server's own certificate (clients send no token without TLS). The caller's token
// identifies the caller.
func startGate(target *rest.Config, pki string) (*Gate, error) {
	to, err := url.Parse(target.Host)
	if err != nil {
		return nil, fmt.Errorf("placing the gate: %w", err)
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(target.CAData) {
		return nil, errors.New("placing the gate: no certificate authority")
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("placing the gate: %w", err)
	}
	g := &Gate{url: "https://" + l.Addr().String(), target: to, served: make(chan struct{}), changed: make(chan struct{})}
	g.server = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64},
			// Every event of a watch goes on at once.
			FlushInterval:  -1,
			ModifyResponse: g.slow,
			// An API server that is away looks as it does without a gate.
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ErrorLog:     log.New(io.Discard, "", 0),
		},
		ErrorLog: log.New(io.Discard, "", 0),
		// HTTP/1.1: what is aborted is a connection, as when a server dies.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	go func() {
		defer close(g.served)
		// Ends with stop.
		_ = g.server.ServeTLS(l, filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
	}()
	return g, nil
}

// Delay makes every event of a watch at least d late, and with 0 no longer.
func (g *Gate) Delay(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = d
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Gate) stop() error {
	err := g.server.Close()
	<-g.served
	return err
}

// slow puts the delay into the answer of a watch.
func (g *Gate) slow(r *http.Response) error {
	if watch := r.Request.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		r.Body = &lateBody{ReadCloser: r.Body, gate: g, ctx: r.Request.Context()}
	}
	return nil
}

// lateBody is the body of a watch.
type lateBody struct {
	io.ReadCloser
	gate *Gate
	ctx  context.Context // of the request
}

// Read hands on what was read after the gate's delay.
func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	arrived := time.Now()
	for {
		b.gate.mu.Lock()
		left, changed := b.gate.late-time.Since(arrived), b.gate.changed
		b.gate.mu.Unlock()
		if n == 0 || left <= 0 {
			return n, err
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-b.ctx.Done():
			timer.Stop()
			return n, err
		}
		timer.Stop()
	}
}

// through writes a copy of a kubeconfig that leads through the gate.
func (g *Gate) through(kubeconfig, dir string) (string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	for _, c := range config.Clusters {
		c.Server = g.url
	}
	path := filepath.Join(dir, filepath.Base(kubeconfig))
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return path, nil
}
