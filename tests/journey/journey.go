package journey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	// killsPerRun is how many points of a trip kill their service;
	// killsOfElected where each kill waits for a lease to run out.
	killsPerRun    = 5
	killsOfElected = 3
	// StepTimeout is how long a step of a trip may take although services die, on
	// top of the outages.
	StepTimeout = 2 * time.Minute
)

// Options of a journey.
type Options struct {
	Variant Variant
	Nodes   int
	// Root is the repository, Bin the folder of binaries built with crash points.
	Root, Bin string
	// Lease is the life of a leader's lease, where there are replicas.
	Lease time.Duration
	// Audit has the API server write down what the services ask of it.
	Audit bool
	// Progress hears what takes long.
	Progress io.Writer
}

// Journey is a fleet whose services can be killed, frozen and disturbed.
type Journey struct {
	Fleet *fleet.Fleet

	audit    *audit
	sessions *sessions
	dir      string // markers, hits and clocks
	next     int
	progress io.Writer

	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu         sync.Mutex
	once       []string        // folders of the markers that points leave
	freezeTime time.Duration   // how long a frozen process stays so at least
	until      <-chan struct{} // what a frozen process waits for besides
	thawed     map[string]bool // markers whose process was released
	faults     map[Kind]int    // injected
	failed     []error         // of background tasks
}

// Here is the round of the stores that can be had on this machine, and why
// mongodb is not among them, or nil.
func Here() (Round, error) {
	_, err := mongotest.Find()
	return Variants(err == nil), err
}

// Start starts every service at once on an empty database; user workloads run
// before them.
func Start(ctx context.Context, o Options) (_ *Journey, err error) {
	dir, err := os.MkdirTemp("", "nvsentinel-journey-")
	if err != nil {
		return nil, err
	}
	j := &Journey{
		audit: newAudit(), sessions: newSessions(), dir: dir, progress: o.Progress,
		thawed: map[string]bool{}, faults: map[Kind]int{},
	}
	running, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Stop())
		}
	}()
	j.Fleet, err = fleet.Start(ctx, fleet.Options{
		Nodes: o.Nodes, Store: o.Variant.Store, SettleTime: time.Second, RebootTime: time.Second, Root: o.Root, Bin: o.Bin, Progress: o.Progress,
		JanitorFlags: []string{"--plugin-timeout", "2s", "--resend-after", "4s"},
		Replicas:     o.Variant.Replicas, Lease: o.Lease, Lines: true, Cold: true, Audit: o.Audit,
		Before: func(ctx context.Context, f *fleet.Fleet) error { return f.AddWorkloads(ctx) },
		Env:    func(name, _ string) []string { return j.env(name) },
	})
	if err != nil {
		return nil, err
	}
	j.injected(ColdStart)
	for name, task := range map[string]func(context.Context) error{
		"following the store": func(ctx context.Context) error { return j.audit.follow(ctx, j.Fleet.Store) },
		"following the nodes": func(ctx context.Context) error { return j.sessions.follow(ctx, j.Fleet.Cluster.Client()) },
		"thawing":             j.thaw,
	} {
		j.tasks.Go(func() {
			if err := task(running); err != nil {
				j.fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	return j, nil
}

func (j *Journey) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = append(j.failed, err)
}

// Stop ends everything and returns the errors of background tasks.
func (j *Journey) Stop() error {
	j.cancel()
	j.tasks.Wait()
	var problems []error
	if j.Fleet != nil {
		problems = append(problems, j.Fleet.Stop())
	}
	return errors.Join(append(append(j.failed, problems...), os.RemoveAll(j.dir))...)
}

// env is the environment of a service that is not armed.
func (j *Journey) env(name string) []string {
	return []string{"NVSENTINEL_CRASH_LOG=" + j.hitsFile(), "NVSENTINEL_CLOCK=" + j.clockFile(name)}
}

func (j *Journey) hitsFile() string { return filepath.Join(j.dir, "hits") }

func (j *Journey) clockFile(name string) string { return filepath.Join(j.dir, "clock-"+name) }

func (j *Journey) injected(k Kind) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults[k]++
}

// Node gives each trip a node of its own.
func (j *Journey) Node() string {
	j.next++
	return fmt.Sprintf("gpu-%d", j.next-1)
}

// arms are the faults that the services inject into themselves.
type arms struct {
	kills, freezes []string
	// instead are programs to run instead of the services', by "service/fault".
	instead map[string]string
	// freezeTime is how long a frozen process stays frozen at least, until what it
	// waits for besides; nil is nothing.
	freezeTime time.Duration
	until      <-chan struct{}
}

// arm restarts services with an environment that kills or freezes them, or as
// other programs.
func (j *Journey) arm(node string, a arms) error {
	once, err := os.MkdirTemp(j.dir, "once-")
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.once, j.freezeTime, j.until = append(j.once, once), a.freezeTime, a.until
	j.mu.Unlock()
	type list struct {
		kills, freezes []string
		instead        string
	}
	services := map[string]*list{}
	service := func(point string) *list {
		point, _, _ = strings.Cut(point, ":")
		name := service(point, node)
		if services[name] == nil {
			services[name] = &list{}
		}
		return services[name]
	}
	for _, k := range a.kills {
		l := service(k)
		l.kills = append(l.kills, k)
	}
	for _, f := range a.freezes {
		l := service(f)
		l.freezes = append(l.freezes, f)
	}
	for fault, program := range a.instead {
		service(fault).instead = program
	}
	for name, l := range services {
		err := j.rearm(name, l.instead,
			"NVSENTINEL_CRASH_ONCE="+once, "NVSENTINEL_CRASH="+strings.Join(l.kills, ","),
			"NVSENTINEL_FREEZE="+strings.Join(l.freezes, ","))
		if err != nil {
			return err
		}
	}
	return nil
}

// rearm restarts a service, or every replica of it, with an environment, and as
// another program unless that is empty: by force, but politely where a dead
// leader's lease would have to run out.
func (j *Journey) rearm(name, instead string, env ...string) error {
	services := j.Fleet.Replicas(name)
	if len(services) == 0 {
		return fmt.Errorf("no service %q", name)
	}
	for _, s := range services {
		s.Instead(instead)
		s.SetEnv(append(j.env(s.Name), env...))
		if j.Fleet.Elects(name) {
			s.Restart()
		} else {
			s.Kill()
		}
	}
	return nil
}

func (j *Journey) disarm(node string, points ...string) error {
	var names []string
	for _, p := range points {
		point, _, _ := strings.Cut(p, ":")
		if name := service(point, node); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := j.rearm(name, ""); err != nil {
			return err
		}
	}
	return nil
}

// Run runs one trip on its own node and returns which invariants it broke.
func (j *Journey) Run(ctx context.Context, p Plan) Result {
	r := Result{Plan: p, Node: j.Node(), Checked: map[string]int{}}
	began := time.Now()
	t := j.newRun(p.Scenario, r.Node)
	t.replayed = p.Variant.Store == "postgresql"
	for _, d := range p.Disturbances {
		t.limit += d.After + d.For
	}
	r.run = t
	r.Err = j.run(ctx, p, t)
	violations, err := t.settle(ctx, j, r.Checked)
	r.Violations, r.Err = violations, errors.Join(r.Err, err)
	if r.blocked() {
		r.Why = j.explain(ctx, r.Node)
		r.Checked[Explained]++
		if r.Why.Vague != "" {
			r.Violations = append(r.Violations, Violation{Explained, r.Node + ": " + r.Why.Vague})
		}
	}
	r.Took = time.Since(began)
	return r
}

func (j *Journey) newRun(s Scenario, node string) *scenarioRun {
	return &scenarioRun{fleet: j.Fleet, scenario: s, node: node, limit: StepTimeout, endLoad: func() error { return nil }, load: &load{fleet: j.Fleet, node: node, acked: map[string]bool{}}}
}

// run plays the story of a plan.
func (j *Journey) run(ctx context.Context, p Plan, t *scenarioRun) error {
	a := arms{kills: p.Kills}
	for _, d := range p.Disturbances {
		if d.Kind == Frozen {
			a.freezes, a.freezeTime = []string{p.Freeze}, d.For
		}
	}
	if t.scenario == Replaced || t.scenario == Returned {
		j.injected(NodeDeleted)
	}
	if t.scenario.forgets() {
		j.injected(StoreForgets)
	}
	return j.take(ctx, t, a, p.Disturbances)
}

// take arms the services, has the disturbances happen while the story goes on,
// and waits for both.
func (j *Journey) take(ctx context.Context, t *scenarioRun, a arms, list []Disturbance) error {
	if err := j.arm(t.node, a); err != nil {
		return err
	}
	ready, err := j.prepare(t, list)
	if err != nil {
		return err
	}
	disturbed, ended := make(chan error, 1), make(chan error, 1)
	loading, endLoad := context.WithCancel(ctx)
	t.endLoad = sync.OnceValue(func() error { endLoad(); return <-ended })
	go func() { ended <- t.load.run(loading) }()
	var first sync.WaitGroup // what begins before the story does
	for i := range ready {
		if ready[i].After == 0 && ready[i].At == "" {
			first.Add(1)
			ready[i].started = first.Done
		}
	}
	go func() { disturbed <- j.disturb(ctx, ready) }()
	first.Wait()
	reported := t.run(ctx)
	// What is away comes back, under load, before any invariant is checked.
	return errors.Join(reported, <-disturbed, t.endLoad())
}
