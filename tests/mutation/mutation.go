package mutation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// tellers are packages whose golden lives are the tests of a pure one beside its own.
var tellers = map[string]string{"repair-chain/chain": "repair-chain/internal/work"}

// Run tries changes of a package, which is a folder below the root: each is noticed if
// one of the package's tests fails. Changes that do not compile are passed over.
func Run(ctx context.Context, folder string, o Options) (Outcome, error) {
	out := Outcome{Package: folder}
	changes, err := changesOf(filepath.Join(o.Root, folder))
	if err != nil {
		return out, err
	}
	if verdict, said, err := o.try(ctx, folder, Change{}); err != nil || verdict != survived {
		return out, errors.Join(err, fmt.Errorf("the tests of %s fail without any change: %s", folder, said))
	}
	shuffle(folder, changes)
	var mu sync.Mutex
	var problems []error
	next := make(chan Change)
	var lanes sync.WaitGroup
	for range max(1, o.Lanes) {
		lanes.Go(func() {
			for c := range next {
				verdict, _, err := o.try(ctx, folder, c)
				mu.Lock()
				problems = append(problems, err)
				out.count(verdict, c, o)
				mu.Unlock()
			}
		})
	}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return o.Sample > 0 && out.Tried >= o.Sample
	}
	for _, c := range changes {
		if ctx.Err() != nil || enough() {
			break
		}
		next <- c
	}
	close(next)
	lanes.Wait()
	slices.SortFunc(out.Survivors, func(a, b Change) int { return strings.Compare(a.String(), b.String()) })
	return out, errors.Join(append(problems, ctx.Err())...)
}

func (o *Outcome) count(v verdict, c Change, options Options) {
	if v == unbuilt {
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

// shuffle gives each package an order of its own that is always the same.
func shuffle(folder string, changes []Change) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(folder))
	rand.New(rand.NewPCG(h.Sum64(), 1)).Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
}

type verdict int

const (
	survived verdict = iota
	noticed
	unbuilt
)

// try runs the tests of a package with a change; an empty one changes nothing.
func (o Options) try(ctx context.Context, folder string, c Change) (verdict, string, error) {
	args := []string{"test", "-short", "-count=1", "-failfast", "-vet=off", "-timeout=3m"}
	if c != (Change{}) {
		dir, err := os.MkdirTemp("", "nvsentinel-mutate-")
		if err != nil {
			return survived, "", err
		}
		defer os.RemoveAll(dir)
		overlay, err := writeOverlay(dir, filepath.Join(o.Root, folder, c.File), c)
		if err != nil {
			return survived, "", err
		}
		args = append(args, "-overlay", overlay)
	}
	args = append(args, "./"+folder)
	if teller, ok := tellers[folder]; ok {
		args = append(args, "./"+teller)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.Root
	said, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err == nil:
		return survived, "", nil
	case ctx.Err() != nil || !errors.As(err, &failed):
		return survived, "", fmt.Errorf("running the tests of %s: %w", folder, errors.Join(err, ctx.Err()))
	case bytes.Contains(said, []byte("[build failed]")):
		return unbuilt, string(said), nil
	}
	return noticed, string(said), nil
}

// writeOverlay describes the source with one file replaced.
func writeOverlay(dir, path string, c Change) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, []byte(c.apply(text)), 0o600), os.WriteFile(overlay, b, 0o600))
}
