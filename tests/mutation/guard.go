package mutation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/tests/overlay"
)

// turn is the variable with the number of the change that a guarded package applies.
const turn = "NVSENTINEL_MUTANT"

// guards is a file that a guarded package gets beside its own: what stands at the places
// of its changes.
const guards = `

import (
	"cmp"
	"os"
)

var mutantTurn = os.Getenv("` + turn + `")

func mutant(n string) bool { return n == mutantTurn }

func mutantAnd(n string, a bool, b func() bool) bool {
	if mutant(n) {
		return a || b()
	}
	return a && b()
}

func mutantOr(n string, a bool, b func() bool) bool {
	if mutant(n) {
		return a && b()
	}
	return a || b()
}

func mutantLess[T cmp.Ordered](n string, a, b T) bool { return a < b || mutant(n) && a == b }

func mutantAtMost[T cmp.Ordered](n string, a, b T) bool { return a < b || !mutant(n) && a == b }

func mutantMore[T cmp.Ordered](n string, a, b T) bool { return mutantLess(n, b, a) }

func mutantAtLeast[T cmp.Ordered](n string, a, b T) bool { return mutantAtMost(n, b, a) }

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantPlus[T mutantNumber](n string, a, b T) T {
	if mutant(n) {
		return a - b
	}
	return a + b
}

func mutantMinus[T mutantNumber](n string, a, b T) T {
	if mutant(n) {
		return a + b
	}
	return a - b
}
`

// guard is what is written around a place, and at it, for its change to happen at its
// turn only; %n is its number.
type guard struct{ before, instead, after string }

// operators are guarded so.
var operators = map[token.Token]guard{
	token.LAND: {"mutantAnd(%n, ", ", func() bool { return (", ") })"},
	token.LOR:  {"mutantOr(%n, ", ", func() bool { return (", ") })"},
	token.LSS:  {"mutantLess(%n, ", ",", ")"},
	token.LEQ:  {"mutantAtMost(%n, ", ",", ")"},
	token.GTR:  {"mutantMore(%n, ", ",", ")"},
	token.GEQ:  {"mutantAtLeast(%n, ", ",", ")"},
	token.ADD:  {"mutantPlus(%n, ", ",", ")"},
	token.SUB:  {"mutantMinus(%n, ", ",", ")"},
	token.EQL:  {"((", "==", ") != mutant(%n))"},
	token.NEQ:  {"((", "!=", ") != mutant(%n))"},
}

// turned guards a boolean.
var turned = guard{before: "(", after: " != mutant(%n))"}

// piece replaces bytes of a file; of several at one place the lowest rank comes first.
type piece struct {
	at, end, rank int
	text          string
}

// guarded is a file with the guards of changes, by their numbers.
func guarded(text []byte, changes map[int]Change) string {
	// Outer expressions come before inner ones: their guards open first and close last.
	numbers := slices.SortedFunc(maps.Keys(changes), func(a, b int) int {
		x, y := changes[a], changes[b]
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(y.to, x.to), cmp.Compare(y.at, x.at))
	})
	var pieces []piece
	for depth, n := range numbers {
		c := changes[n]
		add := func(at, end, rank int, text string) {
			pieces = append(pieces, piece{at, end, rank, strings.ReplaceAll(text, "%n", strconv.Quote(strconv.Itoa(n)))})
		}
		add(c.from, c.from, 1+depth, c.guard.before)
		if c.guard.instead != "" {
			add(c.at, c.end, 1+depth, c.guard.instead)
		}
		add(c.to, c.to, -1-depth, c.guard.after)
	}
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
	var out strings.Builder
	from := 0
	for _, p := range pieces {
		out.Write(text[from:p.at])
		out.WriteString(p.text)
		from = p.end
	}
	out.Write(text[from:])
	return out.String()
}

// bench is the tests of a package, compiled once with all changes that can be guarded.
type bench struct {
	dir     string
	root    string
	folders []string
	// guarded are the numbers of the changes.
	guarded map[int]bool
}

// place of a compiler's complaint.
var place = regexp.MustCompile(`(?m)([^/\s]+\.go):(\d+):(?:\d+:)? `)

// newBench compiles the tests of a package in a folder. Changes whose guards do not
// compile, as those in constants, are left out.
func (o Options) newBench(ctx context.Context, dir, folder string, changes []Change) (*bench, error) {
	b := &bench{dir: dir, root: o.Root, folders: foldersOf(folder), guarded: map[int]bool{}}
	for i := range changes {
		b.guarded[i] = true
	}
	for {
		overlay, err := b.write(folder, changes)
		if err != nil {
			return nil, err
		}
		output, err := b.compile(ctx, "build", "-gcflags=-e", "-overlay="+overlay, "-o="+os.DevNull, "./"+folder)
		if err == nil {
			args := []string{"test", "-c", "-vet=off", "-overlay=" + overlay, "-o=" + dir + "/"}
			for _, f := range b.folders {
				args = append(args, "./"+f)
			}
			output, err = b.compile(ctx, args...)
		}
		if err == nil {
			return b, nil
		}
		if !b.leaveOut(output, changes) {
			return nil, fmt.Errorf("compiling the tests of %s with all changes: %w\n%s", folder, err, output)
		}
	}
}

// leaveOut removes the guards in lines that the compiler rejects, and reports whether there were
// any.
func (b *bench) leaveOut(output []byte, changes []Change) bool {
	any := false
	for _, m := range place.FindAllSubmatch(output, -1) {
		line, _ := strconv.Atoi(string(m[2]))
		for i, c := range changes {
			if b.guarded[i] && c.File == string(m[1]) && c.first <= line && line <= c.last {
				b.guarded[i], any = false, true
			}
		}
	}
	return any
}

// packageClause of a Go file.
var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// write writes the guarded package and the overlay that describes it.
func (b *bench) write(folder string, changes []Change) (string, error) {
	texts, clause := map[string]string{}, ""
	put := func(name, text string) { texts[filepath.Join(b.root, folder, name)] = text }
	files := map[string]map[int]Change{}
	for i, c := range changes {
		if files[c.File] == nil {
			files[c.File] = map[int]Change{}
		}
		if b.guarded[i] {
			files[c.File][i] = c
		}
	}
	for file, of := range files {
		text, err := os.ReadFile(filepath.Join(b.root, folder, file))
		if err != nil {
			return "", err
		}
		clause = packageClause.FindString(string(text))
		put(file, guarded(text, of))
	}
	put("mutation_guards.go", clause+guards)
	return overlay.Write(b.dir, texts)
}

func (b *bench) compile(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.root
	return cmd.CombinedOutput()
}

// run runs the tests with a change; number -1 changes nothing.
func (b *bench) run(ctx context.Context, number int) (verdict, error) {
	for _, folder := range b.folders {
		program := filepath.Join(b.dir, filepath.Base(folder)+".test")
		if _, err := os.Stat(program); err != nil {
			continue // no tests
		}
		cmd := exec.CommandContext(ctx, program, "-test.short", "-test.failfast", "-test.timeout=1m")
		cmd.Dir, cmd.Env = filepath.Join(b.root, folder), append(os.Environ(), turn+"="+strconv.Itoa(number))
		var failed *exec.ExitError
		switch err := cmd.Run(); {
		case err == nil:
		case ctx.Err() == nil && errors.As(err, &failed):
			return noticed, nil
		default:
			return untried, fmt.Errorf("running the tests of %s: %w", folder, errors.Join(err, ctx.Err()))
		}
	}
	return survived, nil
}
