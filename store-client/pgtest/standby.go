package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Standby starts an asynchronous standby of the server, which follows it.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, fmt.Errorf("making the standby's folder: %w", err)
	}
	standby := &Server{opts: s.opts, dir: dir, bin: s.bin, port: s.port, temporary: true}
	if err := standby.copy(ctx, s); err != nil {
		return nil, errors.Join(err, standby.remove())
	}
	if err := standby.run(ctx); err != nil {
		return nil, errors.Join(err, standby.remove())
	}
	return standby, nil
}

// copy takes a base backup that follows the primary.
func (s *Server) copy(ctx context.Context, primary *Server) error {
	cred, err := credential()
	if err != nil {
		return err
	}
	if cred != nil {
		if err := os.Chown(s.dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return fmt.Errorf("giving the folder to the server's user: %w", err)
		}
	}
	backup := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_basebackup"), "-D", s.data(), "-h", primary.dir,
		"-p", fmt.Sprint(primary.port), "-U", "postgres", "-R", "-X", "stream", "-c", "fast")
	backup.Dir = s.dir
	backup.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("copying the primary: %w: %s", err, out)
	}
	return nil
}

// Detach stops the following: what the primary writes from now on is not got.
func (s *Server) Detach(ctx context.Context) error {
	if err := s.Exec(ctx, "postgres", "ALTER SYSTEM SET primary_conninfo = ''"); err != nil {
		return err
	}
	return s.Exec(ctx, "postgres", "SELECT pg_reload_conf()")
}

// Promote makes the standby a primary.
func (s *Server) Promote(ctx context.Context) error {
	return s.Exec(ctx, "postgres", "SELECT pg_promote()")
}
