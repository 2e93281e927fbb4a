package journey

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// cutEvery is how often connections are cut while the database line is bad.
const cutEvery = 700 * time.Millisecond

// begun is a disturbance that is prepared: start injects it, and returns what
// undoes it.
type begun struct {
	Disturbance
	start starter
	// started is called when it has begun.
	started func()
	// passed is how often At was passed before.
	passed int
}

// prepare makes ready what has to be there before a trip begins.
func (j *Journey) prepare(t *scenarioRun, list []Disturbance) ([]begun, error) {
	var out []begun
	for _, d := range list {
		start, err := j.starter(t, d)
		if err != nil {
			return nil, fmt.Errorf("preparing %s: %w", d.Kind, err)
		}
		if start != nil {
			hits, err := j.hits()
			if err != nil {
				return nil, err
			}
			out = append(out, begun{Disturbance: d, start: start, started: func() {}, passed: hits[d.At]})
		}
	}
	return out, nil
}

type starter = func(context.Context) (func(context.Context) error, error)

// starter is how a disturbance begins; nil for those that need nobody.
func (j *Journey) starter(t *scenarioRun, d Disturbance) (starter, error) {
	f := j.Fleet
	switch d.Kind {
	case APIAway:
		return func(context.Context) (func(context.Context) error, error) {
			f.Cluster.StopAPIServer()
			return f.Cluster.StartAPIServer, nil
		}, nil
	case DatabaseAway:
		return f.StopDatabase, nil
	case NotPrimary:
		return func(ctx context.Context) (func(context.Context) error, error) {
			return nil, f.StepDownDatabase(ctx, d.For)
		}, nil
	case DatabaseCut:
		return func(ctx context.Context) (func(context.Context) error, error) { return j.cutting(ctx), nil }, nil
	case ClockJump:
		return func(context.Context) (func(context.Context) error, error) { return j.jump(d) }, nil
	case StaleWatch:
		return func(context.Context) (func(context.Context) error, error) {
			f.Gate.Delay(d.By)
			return func(context.Context) error { f.Gate.Delay(0); return nil }, nil
		}, nil
	case ForeignTransaction:
		return func(ctx context.Context) (func(context.Context) error, error) { return t.besideTransaction(ctx) }, nil
	case Malformed:
		return func(ctx context.Context) (func(context.Context) error, error) { return j.pestering(ctx, t), nil }, nil
	case DiskFull:
		disk, err := f.SmallDisk(t.node, "8m")
		if err != nil {
			return nil, err
		}
		return func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { return disk.Empty() }, disk.Fill()
		}, nil
	case Killed, Frozen, ColdStart, NodeDeleted, StoreForgets: // the points', the fleet's and the story's own
	}
	return nil, nil
}

// disturb has the disturbances happen and returns when all are undone.
func (j *Journey) disturb(ctx context.Context, list []begun) error {
	problems := make([]error, len(list))
	var all sync.WaitGroup
	for i, d := range list {
		all.Go(func() { problems[i] = j.happen(ctx, d) })
	}
	all.Wait()
	return errors.Join(problems...)
}

func (j *Journey) happen(ctx context.Context, d begun) error {
	if d.After > 0 && !pause(ctx, d.After) {
		return nil
	}
	for d.At != "" && pause(ctx, 20*time.Millisecond) {
		if hits, err := j.hits(); err != nil || hits[d.At] > d.passed {
			break
		}
	}
	undo, err := d.start(ctx)
	d.started()
	if err == nil {
		j.injected(d.Kind)
		pause(ctx, d.For)
	}
	if undo != nil {
		err = errors.Join(err, undo(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Kind, err)
	}
	return nil
}

// cutting cuts the database's connections until it is undone.
func (j *Journey) cutting(ctx context.Context) func(context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			j.Fleet.CutDatabase()
			pause(ctx, cutEvery)
		}
	}()
	return func(context.Context) error {
		cancel()
		<-done
		return nil
	}
}

// pestering sends malformed events until it is undone.
func (j *Journey) pestering(ctx context.Context, t *scenarioRun) func(context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	all := malformed(t.node) // which takes a while
	go func() {
		wrong, err := t.disturbIngest(ctx, all)
		t.badAnswers = wrong
		done <- err
	}()
	return func(context.Context) error {
		cancel()
		return <-done
	}
}

// jump makes the clocks of one service, or of all, wrong.
func (j *Journey) jump(d Disturbance) (func(context.Context) error, error) {
	var files []string
	for _, s := range j.Fleet.Services() {
		if d.Of == "" || d.Of == serviceOf(s.Name) {
			files = append(files, j.clockFile(s.Name))
		}
	}
	undo := func(context.Context) error {
		var problems []error
		for _, file := range files {
			problems = append(problems, os.Remove(file))
		}
		return errors.Join(problems...)
	}
	for _, file := range files {
		// In one step: a service may read it at any time.
		if err := os.WriteFile(file+".new", []byte(d.By.String()), 0o600); err != nil {
			return undo, err
		}
		if err := os.Rename(file+".new", file); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

// serviceOf is the service of a process by its name: "janitor-2", "platform-connectors@gpu-1".
func serviceOf(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if base, number, ok := cutLast(name, "-"); ok {
		if _, err := strconv.Atoi(number); err == nil {
			return base
		}
	}
	return name
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// thaw lets frozen processes go on: after the time they are to be held, and
// where another replica stands by, only when it leads.
func (j *Journey) thaw(ctx context.Context) error {
	var frozen sync.WaitGroup
	defer frozen.Wait()
	for pause(ctx, 20*time.Millisecond) {
		for _, marker := range j.newMarkers() {
			j.injected(Frozen)
			frozen.Go(func() {
				if err := j.release(ctx, marker); err != nil {
					j.fail(err)
				}
			})
		}
	}
	return nil
}

// newMarkers lists the markers of processes that froze since the last call.
func (j *Journey) newMarkers() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, dir := range j.once {
		found, _ := filepath.Glob(filepath.Join(dir, "*.frozen")) // the pattern is well-formed
		for _, marker := range found {
			if !j.thawed[marker] {
				j.thawed[marker] = true
				out = append(out, marker)
			}
		}
	}
	return out
}

func (j *Journey) release(ctx context.Context, marker string) error {
	service, point, _ := strings.Cut(strings.TrimSuffix(filepath.Base(marker), ".frozen"), "_")
	info, err := os.Stat(marker)
	if err != nil {
		return fmt.Errorf("finding the frozen process: %w", err)
	}
	pid, err := pidIn(ctx, marker)
	if err != nil {
		return fmt.Errorf("finding the frozen process: %w", err)
	}
	j.mu.Lock()
	hold, until := j.freezeTime, j.until
	j.mu.Unlock()
	pause(ctx, hold)
	if until != nil {
		select {
		case <-until:
		case <-ctx.Done():
		}
	}
	limit, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	for j.Fleet.Elects(service) {
		// The API server may be away; then nobody can take over yet.
		since, err := j.Fleet.Leading(limit, service)
		if err == nil && since.After(info.ModTime()) || !pause(limit, 50*time.Millisecond) {
			break
		}
	}
	for _, s := range j.Fleet.Services() {
		if s.PID() == pid {
			s.Thaw() // the next trip may hold it
			fmt.Fprintf(j.progress, "%s was frozen at %s for %s", s.Name, point, time.Since(info.ModTime()).Round(time.Millisecond))
		}
	}
	return nil
}

// pidIn reads a marker, which is made before it is written.
func pidIn(ctx context.Context, marker string) (int, error) {
	for {
		b, err := os.ReadFile(marker)
		if err != nil {
			return 0, err
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return pid, nil
		}
		if !pause(ctx, 5*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}
