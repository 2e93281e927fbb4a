package journey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

// RunOptions define how seeds are run.
type RunOptions struct {
	// Root is the repository, Bin the folder of binaries built with crash points.
	Root, Bin string
	Times     Times
	// Round is the set-ups that batches of seeds go through.
	Round Round
	// Evidence is the directory for the artifacts of failed runs.
	Evidence string
	// Log reports the progress, one line or more at a time.
	Log func(format string, args ...any)
	// Again is how to run one seed again, with %d for the seed.
	Again string
	// Until is when no further trip begins; zero is never.
	Until time.Time
	// Rights takes in what the services asked of the API server; nil looks at nothing.
	Rights *fleet.Rights
}

// over reports whether no further trip is to begin.
func (r *Run) over(ctx context.Context) bool {
	return ctx.Err() != nil || !r.Until.IsZero() && time.Now().After(r.Until)
}

// Soak goes through the trips that are kept, then through batches of seeds, from
// the given one, until the time is up: in two lanes beside each other, each
// through every store.
func (r *Run) Soak(ctx context.Context, batch uint64) error {
	for _, p := range RegressionPlans() {
		if err := r.runPlans(ctx, []Plan{p}); err != nil {
			return err
		}
	}
	const lanes = 2
	var all sync.WaitGroup
	var problems [lanes]error
	for lane := range uint64(lanes) {
		all.Go(func() {
			for b := batch + lane; !r.over(ctx) && problems[lane] == nil; b += lanes {
				problems[lane] = r.Seeds(ctx, b*BatchSize+1, BatchSize)
			}
		})
	}
	all.Wait()
	return errors.Join(problems[:]...)
}

// Run goes through seeds and keeps the account.
type Run struct {
	RunOptions

	mu    sync.Mutex
	tally *Tally
}

// Seeds goes through consecutive seeds of one batch on a fleet of their own.
// After a trip that failed the fleet is not to be trusted, so that the seeds
// left get another one.
func (r *Run) Seeds(ctx context.Context, first uint64, n int) error {
	var plans []Plan
	for i := range n {
		plans = append(plans, PlanOf(r.Round, first+uint64(i), r.Times))
	}
	return r.runPlans(ctx, plans)
}

func (r *Run) runPlans(ctx context.Context, plans []Plan) error {
	for len(plans) > 0 && !r.over(ctx) {
		done, err := r.some(ctx, plans)
		if err != nil {
			return err
		}
		plans = plans[done:]
	}
	return nil
}

// some goes through plans of one variant on one fleet and returns how many.
func (r *Run) some(ctx context.Context, plans []Plan) (done int, err error) {
	variant := plans[0].Variant
	j, err := Start(ctx, Options{
		Variant: variant, Nodes: len(plans), Root: r.Root, Bin: r.Bin, Lease: r.Times.Lease, Progress: progress(r.Log), Audit: r.Rights != nil,
	})
	if err != nil {
		return 0, fmt.Errorf("starting a fleet (%s): %w", variant, err)
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.Rights != nil {
			err = errors.Join(err, r.Rights.Add(context.WithoutCancel(ctx), j.Fleet.Cluster))
		}
		err = errors.Join(err, r.tally.Close(j), j.Stop())
	}()
	var results []Result
	for done < len(plans) && !r.over(ctx) {
		if plans[done].Scenario.forgets() {
			// The store forgets the trips before with it.
			r.again(ctx, j, results)
			results = nil
		}
		result := j.Run(ctx, plans[done])
		if ctx.Err() != nil {
			break // cut short, so its result does not count
		}
		results = append(results, result)
		r.note(ctx, j, result)
		done++
		if result.Failed() {
			return done, nil
		}
	}
	r.again(ctx, j, results)
	return done, nil
}

// again checks the trips of a fleet once more, when all has come to rest.
func (r *Run) again(ctx context.Context, j *Journey, results []Result) {
	for _, result := range results {
		late := result
		late.Checked, late.Err = map[string]int{}, nil
		late.Violations, late.Err = result.run.settle(ctx, j, late.Checked)
		if ctx.Err() != nil {
			return
		}
		if late.Failed() {
			r.Log("at the end: %s", late)
			r.keep(ctx, j, late, "-at-the-end")
		}
		r.mu.Lock()
		late.count(r.tally)
		r.mu.Unlock()
	}
}

// count counts the invariants and violations, but not the run again.
func (r Result) count(t *Tally) {
	t.Add(r)
	t.Runs--
}

func (r *Run) note(ctx context.Context, j *Journey, result Result) {
	r.Log("%s", result)
	r.mu.Lock()
	r.tally.Add(result)
	r.mu.Unlock()
	if result.Failed() {
		r.Log("  again: "+r.Again, result.Plan.Seed)
		r.keep(ctx, j, result, "")
	}
}

func (r *Run) keep(ctx context.Context, j *Journey, result Result, suffix string) {
	if r.Evidence == "" {
		r.Log("%s", j.Fleet.Logs(result.Node, 15))
		return
	}
	dir := filepath.Join(r.Evidence, fmt.Sprintf("seed-%d%s", result.Plan.Seed, suffix))
	if err := result.Keep(ctx, j, dir); err != nil {
		r.Log("%v", err)
	}
	r.Log("  evidence: %s", dir)
}

// Tally is the account of the run so far.
func (r *Run) Tally() *Tally { return r.tally }

// NewRun prepares a run.
func NewRun(o RunOptions) *Run { return &Run{RunOptions: o, tally: NewTally()} }

// sayer is a writer of whole lines.
type sayer func(format string, args ...any)

// Write logs one line.
func (s sayer) Write(b []byte) (int, error) {
	s("%s", trimLine(b))
	return len(b), nil
}

func progress(say func(string, ...any)) io.Writer { return sayer(say) }

func trimLine(b []byte) string {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return string(b)
}
