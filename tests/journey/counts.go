package journey

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Result is what became of a trip.
type Result struct {
	Plan       Plan
	Node       string
	Took       time.Duration
	Err        error // why the story did not run to its end
	Violations []Violation
	// Why is the output of nvsentinel why for a stuck node.
	Why blockedRun
	// Checked counts how often each invariant was looked at.
	Checked map[string]int

	run *scenarioRun
}

// Failed reports whether the trip broke an invariant or did not end.
func (r Result) Failed() bool { return r.Err != nil || len(r.Violations) > 0 }

func (r Result) String() string {
	s := fmt.Sprintf("seed %d: %s: %.1fs, %d events acknowledged", r.Plan.Seed, r.Plan, r.Took.Seconds(), r.run.load.count())
	if n := r.run.answered.Load(); n > 0 {
		s += fmt.Sprintf(", %d malformed ones answered", n)
	}
	if r.Failed() {
		s += fmt.Sprintf("\n  FAILED: %v %v", r.Violations, r.Err)
	}
	if r.Why.Text != "" {
		s += "\n  why: " + strings.ReplaceAll(strings.TrimSpace(r.Why.Text), "\n", "\n  why: ")
	}
	return s
}

// maxSeedsWithoutHit is after how many seeds a point that none of them passed
// fails a run.
const maxSeedsWithoutHit = 50

// Tally adds up a run.
type Tally struct {
	Runs       int
	Faults     map[Kind]int
	Checked    map[string]int
	Violations []string
	// Hits and Kills are by point, Last the number of runs at the last hit.
	Hits, Kills, Last map[string]int
}

// NewTally is an empty one.
func NewTally() *Tally {
	return &Tally{Faults: map[Kind]int{}, Checked: map[string]int{}, Hits: map[string]int{}, Kills: map[string]int{}, Last: map[string]int{}}
}

// Add counts a trip.
func (t *Tally) Add(r Result) {
	t.Runs++
	for invariant, n := range r.Checked {
		t.Checked[invariant] += n
	}
	for _, v := range r.Violations {
		t.Violations = append(t.Violations, fmt.Sprintf("seed %d: %s", r.Plan.Seed, v))
	}
	if r.Err != nil {
		t.Violations = append(t.Violations, fmt.Sprintf("seed %d: %v", r.Plan.Seed, r.Err))
	}
}

// Close counts what a journey's services met.
func (t *Tally) Close(j *Journey) error {
	hits, err := j.hits()
	kills, killsErr := j.kills()
	for point, n := range hits {
		t.Hits[point] += n
		t.Last[point] = t.Runs
	}
	for point, n := range kills {
		t.Kills[point] += n
		t.Faults[Killed] += n
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for kind, n := range j.faults {
		t.Faults[kind] += n
	}
	return errors.Join(err, killsErr)
}

// Cold lists the points that too many seeds have not passed.
func (t *Tally) Cold() []string {
	var out []string
	for _, p := range Points() {
		if t.Runs-t.Last[p] >= maxSeedsWithoutHit {
			out = append(out, p)
		}
	}
	return out
}

// String is the whole account.
func (t *Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs\n\nfaults injected\n", t.Runs)
	for _, k := range slices.Sorted(maps.Keys(t.Faults)) {
		fmt.Fprintf(&b, "  %-28s %6d\n", k, t.Faults[k])
	}
	b.WriteString("\ninvariants checked\n")
	for _, i := range Invariants() {
		fmt.Fprintf(&b, "  %-56s %6d\n", i, t.Checked[i])
	}
	fmt.Fprintf(&b, "\nviolations: %d\n", len(t.Violations))
	for _, v := range t.Violations {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	fmt.Fprintf(&b, "\n%-24s %-18s %8s %8s\n", "service", "point", "hits", "kills")
	for _, p := range Points() {
		service, point, _ := strings.Cut(p, "/")
		fmt.Fprintf(&b, "%-24s %-18s %8d %8d\n", service, point, t.Hits[p], t.Kills[p])
	}
	return b.String()
}

// hits counts the points that services passed.
func (j *Journey) hits() (map[string]int, error) {
	out := map[string]int{}
	file, err := os.Open(j.hitsFile())
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		_, point, _ := strings.Cut(lines.Text(), " ")
		out[point]++
	}
	return out, lines.Err()
}

// kills counts the points that did kill, by the markers they left.
func (j *Journey) kills() (map[string]int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]int{}
	for _, dir := range j.once {
		markers, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, m := range markers {
			if !strings.HasSuffix(m.Name(), ".frozen") {
				out[strings.Replace(m.Name(), "_", "/", 1)]++
			}
		}
	}
	return out, nil
}
