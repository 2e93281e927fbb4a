// Package mongotest gives tests and demos a MongoDB replica set: the one that
// NVSENTINEL_TEST_MONGODB_URI names, else a throw-away SecantusDB, a third-party server that
// speaks MongoDB's protocol and has change streams and transactions. It runs as a process of
// its own from a Python environment that hack/mongodb.sh makes; what it does and does not do
// stands in the README of this folder.
package mongotest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/internal/freeport"
)

// Variables of the environment.
const (
	// URI names a real replica set to use instead.
	URI = "NVSENTINEL_TEST_MONGODB_URI"
	// Program is the path of secantusd-py, where it is not in the cache folder.
	Program = "NVSENTINEL_TEST_SECANTUSD"
)

// Version of SecantusDB; hack/mongodb.sh installs the same.
const Version = "0.7.0b3"

// ErrNone means that there is no server to be had here.
var ErrNone = errors.New("no MongoDB server: hack/mongodb.sh makes one where the Python package index can be reached; " + URI + " names another")

// Options of a server.
type Options struct {
	// Dir holds the data and the log; it is made when absent and kept by Stop.
	// When empty a temporary one is made and removed by Stop.
	Dir string
	// Flags are further flags of the server.
	Flags []string
	// Query is added to the addresses, for a server that is reached in another
	// way than a plain one: "&tls=true".
	Query string
}

// Server is a running server.
type Server struct {
	opts      Options
	program   string
	dir       string
	temporary bool
	port      int

	mu    sync.Mutex
	child *child // nil before the first start
}

// running is the newest run of the process, or nil.
func (s *Server) running() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

// child is one run of the server's process; done is closed at its end.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs the process from a thread that lives as long as it: the kernel
// kills it when the thread that made it ends, and others in this process end
// threads of theirs.
func (c *child) start() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // how it ended stands in its log
		}
	}()
	return <-started
}

const (
	startTimeout = 3 * time.Minute
	// commandTimeout is how long a command waits for the server to be there.
	commandTimeout = 2 * time.Minute
)

// Find is the program's path, or ErrNone.
func Find() (string, error) {
	path := os.Getenv(Program)
	if path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrNone, err)
		}
		path = filepath.Join(cache, "nvsentinel", "secantusdb-"+Version, "bin", "secantusd-py")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNone, err)
	}
	return path, nil
}

// Start starts a SecantusDB on a free port of the loopback address. Every
// commit is synced to the disk.
func Start(ctx context.Context, opts Options) (*Server, error) {
	program, err := Find()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, program: program, dir: opts.Dir}
	if s.dir != "" {
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return nil, fmt.Errorf("making the server's folder: %w", err)
		}
	} else {
		s.temporary = true
		if s.dir, err = os.MkdirTemp("", "mongotest"); err != nil {
			return nil, fmt.Errorf("making the server's folder: %w", err)
		}
	}
	if s.port, err = freeport.Find(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.Restart(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// Addr is where the server listens, host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Dial connects to the server.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, fmt.Errorf("connecting to the server: %w", err)
	}
	return conn, nil
}

// DSN is the address of a database.
func (s *Server) DSN(database string) string {
	return "mongodb://" + s.Addr() + "/" + database + "?directConnection=true" + s.opts.Query
}

// Restart starts the process on the data that is there and waits until it
// answers.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer log.Close()
	args := append([]string{
		"--port", fmt.Sprint(s.port), "--storage-path", filepath.Join(s.dir, "data"), "--sync-on-commit", "--noop-heartbeat-seconds", "1",
	}, s.opts.Flags...)
	cmd := exec.Command(s.program, args...) //nolint:noctx // it outlives the context of its start
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c := &child{cmd: cmd, done: make(chan struct{})}
	if err := c.start(); err != nil {
		return fmt.Errorf("starting %s: %w", s.program, err)
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()
	if err := s.await(ctx, c); err != nil {
		return errors.Join(err, s.Kill())
	}
	return nil
}

// await asks until the server answers a ping.
func (s *Server) await(ctx context.Context, c *child) error {
	client, err := s.connect(time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	for {
		err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
		if _, refused := errors.AsType[mongo.CommandError](err); err == nil || refused {
			return nil // it answers, if only that it wants to know who asks
		}
		select {
		case <-c.done:
			return fmt.Errorf("the server ended at its start: %s", s.tail())
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w: %s", err, s.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// StepDown makes the server refuse every write for d, in whole seconds: "not
// primary", code 10107. It answers reads meanwhile.
func (s *Server) StepDown(ctx context.Context, d time.Duration) error {
	return s.Command(ctx, "admin", bson.D{{Key: "replSetStepDown", Value: max(1, int(d.Seconds()))}, {Key: "force", Value: true}})
}

// Command runs a command on a database.
func (s *Server) Command(ctx context.Context, database string, command bson.D) error {
	client, err := s.connect(commandTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	if err := client.Database(database).RunCommand(ctx, command).Err(); err != nil {
		return fmt.Errorf("sending a command to the server: %w", err)
	}
	return nil
}

// connect connects; each command waits so long for the server to be there.
// Drop takes a collection away with all it holds.
func (s *Server) Drop(ctx context.Context, database, collection string) error {
	return s.Command(ctx, database, bson.D{{Key: "drop", Value: collection}})
}

// Copy copies every collection of a database, one after the other, as mongodump
// of one database and mongorestore into another do: without indexes, and not as
// of one moment.
func (s *Server) Copy(ctx context.Context, from, to string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	client, err := s.connect(commandTimeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Disconnect(ctx)) }()
	names, err := client.Database(from).ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("listing the collections of %s: %w", from, err)
	}
	for _, name := range names {
		cursor, err := client.Database(from).Collection(name).Find(ctx, bson.D{})
		if err != nil {
			return fmt.Errorf("reading %s.%s: %w", from, name, err)
		}
		var docs []bson.Raw
		if err := cursor.All(ctx, &docs); err != nil {
			return fmt.Errorf("reading %s.%s: %w", from, name, err)
		}
		if len(docs) == 0 {
			continue
		}
		if _, err := client.Database(to).Collection(name).InsertMany(ctx, docs); err != nil {
			return fmt.Errorf("writing %s.%s: %w", to, name, err)
		}
	}
	return nil
}

func (s *Server) connect(wait time.Duration) (*mongo.Client, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(s.DSN("admin")).SetServerSelectionTimeout(wait))
	if err != nil {
		return nil, fmt.Errorf("connecting to the server: %w", err)
	}
	return client, nil
}

func (s *Server) tail() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}

// Dead reports whether the process has ended.
func (s *Server) Dead() bool {
	select {
	case <-s.running().done:
		return true
	default:
		return false
	}
}

// Kill ends the process with SIGKILL.
func (s *Server) Kill() error {
	c := s.running()
	if c == nil {
		return nil
	}
	err := c.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-c.done
	return err
}

// Slay is Kill.
func (s *Server) Slay() error { return s.Kill() }

// Stop ends the process and removes a temporary folder.
func (s *Server) Stop() error { return errors.Join(s.Kill(), s.remove()) }

func (s *Server) remove() error {
	if !s.temporary {
		return nil
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("removing the server's folder: %w", err)
	}
	return nil
}
