package mutation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nvidia/nvsentinel/tests/overlay"
)

// Options of a run.
type Options struct {
	// Root is the folder of the workspace.
	Root string
	// Sample is how many changes are tried of each package, the same ones each time; 0
	// tries all.
	Sample int
	// Lanes is how many are tried at once.
	Lanes int
	// Explained are changes that may go unnoticed: package folder and Change.String
	// without its line, and why.
	Explained map[string]string
}

// Outcome of a package.
type Outcome struct {
	Package                   string
	Tried, Noticed, Explained int
	Survivors                 []Change
}

// Share of the changes that were noticed or are explained, in per cent.
func (o Outcome) Share() int {
	if o.Tried == 0 {
		return 100
	}
	return 100 * (o.Noticed + o.Explained) / o.Tried
}

// tellers are packages whose tests are those of a pure one, beside its own.
var tellers = map[string]string{
	"repair-chain/chain":                         "repair-chain/internal/work",
	"health-monitors/gpu-health-monitor/reading": "health-monitors/gpu-health-monitor/check",
}

// Run tries changes of a package, which is a folder below the root: each is noticed if
// one of the package's tests fails. Changes that do not compile are passed over.
func Run(ctx context.Context, folder string, o Options) (Outcome, error) {
	out := Outcome{Package: folder}
	changes, err := changesOf(filepath.Join(o.Root, folder))
	if err != nil {
		return out, err
	}
	switch reported, err := o.trial(folder).Run(ctx); {
	case err != nil:
		return out, err
	case len(reported.Failed) > 0 || reported.Unbuilt != "":
		return out, fmt.Errorf("the tests of %s fail without any change: %s %s", folder, strings.Join(reported.Failed, " "), reported.Unbuilt)
	case reported.Ran == 0:
		return out, fmt.Errorf("%s has no tests: name the package that has them among the tellers", folder)
	}
	if len(changes) == 0 {
		return out, nil
	}
	shuffle(changes)
	dir, err := os.MkdirTemp("", "nvsentinel-mutate-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	b, err := o.newBench(ctx, dir, folder, changes)
	if err != nil {
		return out, err
	}
	if v, err := b.run(ctx, -1); err != nil || v != survived {
		return out, errors.Join(err, fmt.Errorf("the tests of %s fail with guards", folder))
	}
	verdicts, err := o.tryAll(ctx, folder, changes, b)
	for i, v := range verdicts {
		if o.Sample == 0 || out.Tried < o.Sample {
			out.count(v, changes[i], o)
		}
	}
	slices.SortFunc(out.Survivors, func(a, b Change) int { return strings.Compare(a.String(), b.String()) })
	return out, err
}

// tryAll tries changes in their order until enough of them have compiled: the sample is
// the same whichever lane is quicker.
func (o Options) tryAll(ctx context.Context, folder string, changes []Change, b *bench) ([]verdict, error) {
	verdicts, problems := make([]verdict, len(changes)), make([]error, len(changes))
	var next, tried atomic.Int64
	var lanes sync.WaitGroup
	for range max(1, o.Lanes) {
		lanes.Go(func() {
			for ctx.Err() == nil && (o.Sample == 0 || int(tried.Load()) < o.Sample) {
				i := int(next.Add(1)) - 1
				if i >= len(changes) {
					return
				}
				if b.guarded[i] {
					verdicts[i], problems[i] = b.run(ctx, i)
				} else {
					verdicts[i], problems[i] = o.alone(ctx, folder, changes[i])
				}
				if verdicts[i] != unbuilt {
					tried.Add(1)
				}
			}
		})
	}
	lanes.Wait()
	return verdicts, errors.Join(append(problems, ctx.Err())...)
}

func (o *Outcome) count(v verdict, c Change, options Options) {
	if v == untried || v == unbuilt {
		return
	}
	o.Tried++
	_, explained := options.Explained[Key(o.Package, c)]
	switch {
	case v == noticed:
		o.Noticed++
	case explained:
		o.Explained++
	default:
		o.Survivors = append(o.Survivors, c)
	}
}

// Stale are explanations of changes that the source does not have.
func Stale(root string, explained map[string]string) ([]string, error) {
	known := map[string]bool{}
	for key := range explained {
		file, _, _ := strings.Cut(key, ": ")
		changes, err := changesOf(filepath.Join(root, filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		for _, c := range changes {
			known[Key(filepath.Dir(file), c)] = true
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(explained)), func(key string) bool { return known[key] }), nil
}

// Key names a change in the list of explanations.
func Key(folder string, c Change) string {
	return folder + "/" + c.String()
}

// changesOf are the changes of all files of a package but its tests.
func changesOf(dir string) ([]Change, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no Go files", dir))
	}
	var out []Change
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		changes, err := Changes(filepath.Base(path), text)
		if err != nil {
			return nil, err
		}
		out = append(out, changes...)
	}
	return out, nil
}

// shuffle gives changes an order by chance that is always the same, and that stays when
// others come or go.
func shuffle(changes []Change) {
	chance := func(c Change) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.String()))
		return h.Sum64()
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(chance(a), chance(b)) })
}

type verdict int

const (
	untried verdict = iota
	survived
	noticed
	unbuilt
)

// foldersOf are those whose tests are a package's.
func foldersOf(folder string) []string {
	if teller, ok := tellers[folder]; ok {
		return []string{folder, teller}
	}
	return []string{folder}
}

// trial runs the tests of a package as it is.
func (o Options) trial(folder string) overlay.Trial {
	t := overlay.Trial{Root: o.Root, Args: []string{"-short", "-failfast", "-timeout=1m"}}
	for _, f := range foldersOf(folder) {
		t.Args = append(t.Args, "./"+f)
	}
	return t
}

// alone runs the tests of a package that is compiled with a change.
func (o Options) alone(ctx context.Context, folder string, c Change) (verdict, error) {
	t := o.trial(folder)
	path := filepath.Join(o.Root, folder, c.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return untried, err
	}
	t.Texts = map[string]string{path: c.apply(text)}
	reported, err := t.Run(ctx)
	switch {
	case err != nil:
		return untried, err
	case len(reported.Failed) > 0:
		return noticed, nil
	case reported.Unbuilt != "":
		return unbuilt, nil
	}
	return survived, nil
}
