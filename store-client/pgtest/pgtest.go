// Package pgtest runs throw-away PostgreSQL servers for tests and demos. It
// needs the server's programs (Debian package postgresql) and fails without
// them. As root it runs them as the user postgres.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nvidia/nvsentinel/internal/freeport"
)

// Options of a server.
type Options struct {
	// Dir holds the data, the log and the socket. It is made when absent and
	// kept by Stop; when empty, a temporary one is made and removed by Stop. A
	// server is started again on the data it finds.
	Dir string
	// Durable keeps fsync on; without it the server is fast and may lose data
	// with the machine (not with its own process).
	Durable bool
	// TCP makes the server listen on a free port of the loopback address too.
	TCP bool
	// Settings are further lines of the configuration, "name=value".
	Settings []string
	// Files are written, by name, into the folder, for the server alone; it
	// runs there, and its data is one folder below.
	Files map[string]string
}

// Server is a running server.
type Server struct {
	opts      Options
	dir       string
	bin       string
	port      int
	temporary bool
	child     *child
}

const startTimeout = 2 * time.Minute

// Start makes a cluster if there is none and starts its server, on a Unix
// socket.
func Start(ctx context.Context, opts Options) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, dir: opts.Dir, bin: bin, port: 5432}
	if opts.TCP {
		if s.port, err = freeport.Find(ctx); err != nil {
			return nil, err
		}
	}
	if s.dir == "" {
		s.temporary = true
		if s.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
			return nil, fmt.Errorf("making the server's folder: %w", err)
		}
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// programs finds the newest installed server's folder of programs.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", fmt.Errorf("finding PostgreSQL: %w", err)
	}
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", errors.New("PostgreSQL is not installed: install the package postgresql (apt-get install postgresql)")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", fmt.Errorf("finding PostgreSQL: %w", err)
	}
	return filepath.Dir(path), nil
}

// version is the number in /usr/lib/postgresql/15/bin/postgres.
func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// credential is the user postgres when we are root, because the server refuses
// root; nil otherwise.
func credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("finding the user to run PostgreSQL as: %w", err)
	}
	uid, errU := strconv.ParseUint(u.Uid, 10, 32)
	gid, errG := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(errU, errG)
}

// prepare makes the folder the server's own and the cluster in it.
func (s *Server) prepare(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("making the server's folder: %w", err)
	}
	cred, err := credential()
	if err != nil {
		return err
	}
	if cred != nil {
		if err := os.Chown(s.dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return fmt.Errorf("giving the folder to the server's user: %w", err)
		}
	}
	if err := s.writeFiles(cred); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); err == nil {
		return nil
	}
	init := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres",
		"-A", "trust", "-N", "--no-locale", "-E", "UTF8", "--no-instructions")
	init.Dir = s.dir
	init.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("making the cluster: %w: %s", err, out)
	}
	return nil
}

// writeFiles writes what only the server may read.
func (s *Server) writeFiles(cred *syscall.Credential) error {
	for name, text := range s.opts.Files {
		path := filepath.Join(s.dir, name)
		err := os.WriteFile(path, []byte(text), 0o600)
		if err == nil && cred != nil {
			err = os.Chown(path, int(cred.Uid), int(cred.Gid))
		}
		if err != nil {
			return fmt.Errorf("writing a file of the server: %w", err)
		}
	}
	return nil
}

// Addr is where a server with TCP listens, host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// run starts the process and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	cred, err := credential()
	if err != nil {
		return err
	}
	listen := ""
	if s.opts.TCP {
		listen = "127.0.0.1"
	}
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=" + listen, "-c", fmt.Sprintf("port=%d", s.port)}
	if !s.opts.Durable {
		args = append(args, "-F")
	}
	for _, setting := range s.opts.Settings {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer log.Close()
	// The server outlives the start's context.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	// Our death stops the server at once; its own process group keeps an
	// interrupt of the terminal for us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	s.child = &child{cmd: cmd, done: make(chan struct{})}
	if err := s.child.start(); err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return s.await(ctx)
}

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := s.Connect(ctx, "postgres")
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-s.child.done:
			return fmt.Errorf("starting PostgreSQL: it ended: %s", s.logTail())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for PostgreSQL: %w: %s", err, s.logTail()), s.Kill())
		}
	}
}

func (s *Server) logTail() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// DSN is the address of one of the server's databases.
func (s *Server) DSN(database string) string {
	dsn := "postgres:///" + database + "?user=postgres&host=" + strings.ReplaceAll(s.dir, "/", "%2F")
	if s.opts.TCP {
		dsn += fmt.Sprintf("&port=%d", s.port)
	}
	if !s.opts.Durable {
		dsn += "&nvsentinel_allow_unsafe=true"
	}
	return dsn
}

// Dial connects to the server's socket, for a proxy in front of it.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", filepath.Join(s.dir, fmt.Sprintf(".s.PGSQL.%d", s.port)))
}

// CreateDatabase makes an empty database and returns its address.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := s.Exec(ctx, "postgres", "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("creating database %s: %w", name, err)
	}
	return s.DSN(name), nil
}

// Exec runs statements as the server's superuser.
func (s *Server) Exec(ctx context.Context, database, statements string) error {
	conn, err := s.Connect(ctx, database)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statements)
	return errors.Join(err, conn.Close(ctx))
}

// Connect opens a plain connection to a database.
func (s *Server) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	conf, err := pgx.ParseConfig(s.DSN(database))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", database, err)
	}
	delete(conf.RuntimeParams, "nvsentinel_allow_unsafe")
	conn, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", database, err)
	}
	return conn, nil
}
