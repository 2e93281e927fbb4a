package watch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Policies is the policy file: the active set, and the next one when the file changes.
type Policies struct {
	Path string
	// Publishers is a connector's configuration file, which assigns check names to agents;
	// empty is the connectors' built-in names.
	Publishers string
	Clock      clock.WithTicker
	Log        *slog.Logger
	// Strategy is that of policies that name none.
	Strategy record.Strategy
	// Refused is called with the error of a changed file that is not used; may be nil.
	Refused func(ctx context.Context, problem error)
	// Failed is 1 while the file cannot be used; may be nil.
	Failed interface{ Set(float64) }

	finder atomic.Pointer[cluster]
	file   *daemon.FileFollower

	mu      sync.Mutex
	set     *policy.Set
	changed chan struct{}
}

// Find asks the caches of the active set.
func (p *Policies) Find(kind schema.GroupVersionKind, namespace, name string) (map[string]any, error) {
	c := p.finder.Load()
	if c == nil {
		return nil, fmt.Errorf("finding %s %s/%s: %w", kind.Kind, namespace, name, errNotFilled)
	}
	return c.Find(kind, namespace, name)
}

// Load reads the file for the first time.
func (p *Policies) Load() error {
	p.changed = make(chan struct{})
	p.file = &daemon.FileFollower{Files: p.files, Take: p.take, Clock: p.Clock}
	return p.file.Start()
}

// Current returns the active set; the channel is closed when another one becomes active.
func (p *Policies) Current() (*policy.Set, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set, p.changed
}

// Run follows the file until ctx ends.
func (p *Policies) Run(ctx context.Context) error {
	p.file.OnReload = func(err error) { p.recordReload(ctx, err) }
	return p.file.Run(ctx)
}

// files leaves a file out that is gone for a moment: it is being exchanged.
func (p *Policies) files() []string {
	var out []string
	for _, path := range []string{p.Path, p.Publishers} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return nil
		}
		out = append(out, path)
	}
	return out
}

func (p *Policies) take() error {
	text, err := os.ReadFile(p.Path)
	if err != nil {
		return fmt.Errorf("reading the policies: %w", err)
	}
	names, err := report.ReadNames(p.Publishers)
	if err != nil {
		return err
	}
	set, err := policy.Parse(p.Path, string(text), p, names.Of(machine.Agent))
	if err != nil {
		return err
	}
	for _, one := range set.Policies {
		for _, doubt := range one.Warnings(p.Strategy) {
			p.Log.Warn("policy depends on objects that others write", "policy", one.Name, "warning", doubt)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = set
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// recordReload reports what became of a changed file.
func (p *Policies) recordReload(ctx context.Context, err error) {
	if err != nil {
		p.Log.Error("changed policies rejected, the previous ones stay active", "error", err)
		p.fail(1)
		if p.Refused != nil {
			p.Refused(ctx, err)
		}
		return
	}
	p.fail(0)
	set, _ := p.Current()
	p.Log.Info("changed policies loaded", "policies", len(set.Policies))
}

func (p *Policies) fail(x float64) {
	if p.Failed != nil {
		p.Failed.Set(x)
	}
}
