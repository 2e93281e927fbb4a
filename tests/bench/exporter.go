package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const (
	// exportWorkers is the exporter's default, exportNodes over how many nodes
	// the events spread, exportBatch how many events a batch has.
	exportWorkers, exportNodes, exportBatch = 16, 1000, 100
	// exportTarget is in events per second.
	exportTarget = 5000
	// maxStoredBodies is how many of the exporter's requests are stored for the baseline to
	// send.
	maxStoredBodies = 256
)

// receiver takes events and counts the different ones.
type receiver struct {
	mu       sync.Mutex
	seen     map[string]bool
	requests int
	// bodies are some of the requests' bodies; contentType is that of the last.
	bodies      [][]byte
	contentType string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.mu.Lock()
	r.requests++
	r.contentType = req.Header.Get("Content-Type")
	if len(r.bodies) < maxStoredBodies {
		r.bodies = append(r.bodies, body)
	}
	for rest := body; ; {
		// Only an event's own id is followed by its source.
		_, after, found := bytes.Cut(rest, []byte(`"id":"`))
		id, then, _ := bytes.Cut(after, []byte(`"`))
		if !found {
			break
		}
		if bytes.HasPrefix(then, []byte(`,"source"`)) {
			r.seen[string(id)] = true
		}
		rest = then
	}
	r.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

func (r *receiver) have() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// exporter measures the exporter between a durable PostgreSQL and a receiver in
// this process.
func exporter(ctx context.Context, o Options) (rows []Row, err error) {
	server, err := startPostgreSQL(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.end()) }()
	dsn := server.DSN("postgres")
	if err := storeEvents(ctx, dsn, o.Sizes.Events); err != nil {
		return nil, err
	}
	for _, batch := range []int{1, exportBatch} {
		row, err := exportRow(ctx, o, server.dir, dsn, batch)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// freshServer is a durable PostgreSQL in a folder of its own, where others may put
// files too.
type freshServer struct {
	*pgtest.Server
	dir string
}

func startPostgreSQL(ctx context.Context) (*freshServer, error) {
	dir, err := os.MkdirTemp("", "nvsentinel-bench-")
	if err != nil {
		return nil, err
	}
	d := &freshServer{dir: dir}
	if err = os.Chmod(dir, 0o755); err == nil { // PostgreSQL runs as a user of its own
		d.Server, err = pgtest.Start(ctx, pgtest.Options{Dir: filepath.Join(dir, "postgresql"), Durable: true})
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return d, nil
}

func (d *freshServer) end() error { return errors.Join(d.Stop(), os.RemoveAll(d.dir)) }

// storeEvents appends n events of many nodes.
func storeEvents(ctx context.Context, dsn string, n int) (err error) {
	s, err := storeopen.Open(ctx, dsn, storeopen.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, batch := newPen(), []record.Record{}
	for i := range n {
		e := p.fault(fmt.Sprintf("gpu-%d", i%exportNodes), i%8, strconv.Itoa(60+i%faultKinds), protos.RecommendedAction_CONTACT_SUPPORT)
		batch = append(batch, stored(e, &corev1.Node{}))
		if len(batch) == insertBatch || i == n-1 {
			if _, err := s.Append(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// exportRow measures one size of batches, from the start of the process, which
// begins where a new one would.
func exportRow(ctx context.Context, o Options, dir, dsn string, batch int) (row Row, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, "DELETE FROM feed_positions"); err != nil {
		return row, err
	}
	r := &receiver{seen: map[string]bool{}}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return row, err
	}
	web := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(listener) }() // its end is Close
	defer func() { err = errors.Join(err, web.Close()) }()
	url := "http://" + listener.Addr().String()
	file := filepath.Join(dir, "exporter.toml")
	if err := os.WriteFile(file, []byte(exportConfig(url, batch)), 0o600); err != nil {
		return row, err
	}
	took, err := export(ctx, o, dsn, file, r)
	if err != nil {
		return row, err
	}
	requests := r.requests
	least, err := postBaseline(ctx, posts{url, r.contentType, r.bodies, requests}, exportWorkers)
	how := "one per request"
	if batch > 1 {
		how = fmt.Sprintf("in batches of up to %d", batch)
	}
	n := o.Sizes.Events
	return Row{
		Figure: "events per second to a receiver, " + how, Measured: rate(n, took), Baseline: rate(n, least),
		Target: Target{Over: Quantity{exportTarget, PerSecond, true}},
		Note:   fmt.Sprintf("%d requests, 0 lost; floor: the same requests without a store", requests),
	}, err
}

func exportConfig(url string, batch int) string {
	return fmt.Sprintf("workers = %d\n[exporter.metadata]\ncluster = \"bench\"\n[exporter.backfill]\nrateLimit = 0\n[exporter.sink]\nendpoint = %q\nbatchSize = %d\n",
		exportWorkers, url, batch)
}

// export runs the exporter until the receiver has every event.
func export(ctx context.Context, o Options, dsn, file string, r *receiver) (took time.Duration, err error) {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(o.Bin, "event-exporter"), "--config="+file, "--store="+dsn, "--metrics-address=off")
	cmd.Stderr = &log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = until(ctx, o.Sizes.Limit, fmt.Sprintf("%d events at the receiver", o.Sizes.Events), func() (bool, error) {
		return r.have() == o.Sizes.Events, nil
	})
	took = time.Since(began)
	err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, log.Bytes())
	}
	return took, err
}
