package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nvidia/nvsentinel/tests/overlay"
)

// Profiling has every service serve its profiles beside its metrics, in a copy of the
// source that only the compiler sees: the product has no such endpoint.
func Profiling(root, dir string) (flag string, err error) {
	const file = "internal/daemon/server.go"
	texts, err := overlay.Texts(root, []overlay.Edit{
		{File: file, Old: `	"net/http"
`, New: `	"net/http"
	"net/http/pprof"
`},
		{File: file, Old: `	mux.HandleFunc("GET /readyz", d.answerReady)
`, New: `	mux.HandleFunc("GET /readyz", d.answerReady)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
`},
	})
	if err != nil {
		return "", err
	}
	path, err := overlay.Write(dir, texts)
	return "-overlay=" + path, err
}

// profile writes heap and log of every service to the folder of profiles, if there is one; when
// names the step after which it does.
func (u *suite) profile(ctx context.Context, when string) error {
	if u.o.Profiles == "" {
		return nil
	}
	dir := filepath.Join(u.o.Profiles, fmt.Sprintf("%d-%s", u.nodes, when))
	problems := []error{os.MkdirAll(dir, 0o755)}
	for _, v := range u.services {
		for _, p := range v.running {
			log, err := os.ReadFile(p.log)
			problems = append(problems, p.heap(ctx, filepath.Join(dir, p.name+".heap")), err, os.WriteFile(filepath.Join(dir, p.name+".log"), log, 0o600))
		}
	}
	return errors.Join(problems...)
}

// heap writes the program's heap as it is after a collection.
func (p *process) heap(ctx context.Context, path string) error {
	answer, err := p.get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return fmt.Errorf("asking %s for its heap: %w", p.name, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("asking %s for its heap: %w", p.name, err)
	}
	return os.WriteFile(path, text, 0o600)
}
