package journey

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

var (
	seeds     = flag.Int("seeds", 0, "trips of the chaos test; 0 is one on each store")
	firstSeed = flag.Uint64("first-seed", 1, "seed of the first trip")
	evidence  = flag.String("evidence", "", "Directory for the artifacts of failed runs.; empty shows the end of the logs")
	prebuilt  = flag.String("bin", "", "folder of services built with -tags crashpoints; empty builds them")
)

// testTimes bound the outages of tests.
var testTimes = Times{Shortest: 3 * time.Second, Longest: 10 * time.Second, Lease: 6 * time.Second}

// bin holds the services' binaries for the whole package, once built.
var (
	bin   string
	built bool
)

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "nvsentinel-journey-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	made := bin
	code := m.Run()
	if err := os.RemoveAll(made); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// build builds the services with crash points, once, and returns the repository.
func build(t *testing.T) string {
	t.Helper()
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	if *prebuilt != "" {
		bin, built = *prebuilt, true
	}
	if !built {
		if bin, err = fleet.Build(t.Context(), root, bin, testLog{t}, "-tags", "crashpoints"); err != nil {
			t.Fatal(err)
		}
		built = true
	}
	return root
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// TestKillJourney takes faults the whole way while services are killed, frozen
// and cut off at points and moments that the seed chooses.
func TestKillJourney(t *testing.T) {
	if *seeds > 0 {
		travel(t, spans(*firstSeed, *seeds))
		return
	}
	if rights, all := travel(t, onePerStore); all {
		needed(t, rights)
	}
}

// TestKillJourneyOfManySeeds meets more stories, faults and pairs of them.
func TestKillJourneyOfManySeeds(t *testing.T) {
	testkit.Long(t, "TestKillJourney takes one seed on each store")
	travel(t, manySeeds)
}

// travel goes through seeds and returns what the services asked of the API server,
// and whether every store was there.
func travel(t *testing.T, seeds []span) (rights *fleet.Rights, all bool) {
	t.Helper()
	round, missing := Here()
	rights = &fleet.Rights{}
	run := NewRun(RunOptions{
		Rights: rights,
		Root:   build(t), Bin: bin, Times: testTimes, Round: round, Evidence: *evidence, Again: "make chaos FIRST=%d SEEDS=1", Log: t.Logf,
	})
	for _, s := range seeds {
		if err := run.Seeds(t.Context(), s.first, s.n); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("\n%s", run.Tally())
	if n := len(run.Tally().Violations); n > 0 {
		t.Errorf("%d violations", n)
	}
	nothingRefused(t, rights)
	for _, p := range run.Tally().Cold() {
		t.Errorf("no seed of the last %d passed %s", maxSeedsWithoutHit, p)
	}
	if missing != nil {
		t.Run("seeds of mongodb", func(t *testing.T) { t.Skipf("they ran on the other stores: %v", missing) })
	}
	return rights, missing == nil
}

// span is seeds in a row that share a fleet.
type span struct {
	first uint64
	n     int
}

var (
	onePerStore = []span{{1, 1}, {1 + BatchSize, 1}, {1 + 2*BatchSize, 1}}
	manySeeds   = spans(1, 13)
)

// spans divides seeds into spans.
func spans(first uint64, n int) []span {
	var out []span
	for n > 0 {
		s := span{first, min(n, BatchSize-int(first-1)%BatchSize)}
		out = append(out, s)
		first, n = first+uint64(s.n), n-s.n
	}
	return out
}

// TestASeedIsOnePlan: a seed can be run again by its number alone.
func TestASeedIsOnePlan(t *testing.T) {
	met := map[Kind]map[string]int{}
	round := Variants(true)
	const enough = 80
	for seed := range uint64(enough) {
		p := PlanOf(round, seed+1, testTimes)
		if diff := cmp.Diff(p, PlanOf(round, seed+1, testTimes)); diff != "" {
			t.Errorf("seed %d has two plans:\n%s", seed+1, diff)
		}
		for _, d := range p.Disturbances {
			if d.For < testTimes.Shortest || d.For > testTimes.Longest {
				t.Errorf("seed %d: an outage of %s", seed+1, d.For)
			}
			if met[d.Kind] == nil {
				met[d.Kind] = map[string]int{}
			}
			met[d.Kind][p.Variant.String()]++
		}
	}
	for _, v := range round {
		for _, k := range kinds(v, OneFault) {
			if met[k][v.String()] == 0 {
				t.Errorf("%d seeds never meet %q on %s", enough, k, v)
			}
		}
	}
	reported, stories := map[string]bool{}, map[Scenario]bool{}
	for seed := range uint64(len(round) * BatchSize * len(Scenarios())) {
		p := PlanOf(round, seed+1, testTimes)
		reported[fmt.Sprint(p.Scenario, p.Variant)], stories[p.Scenario] = true, true
	}
	if want := len(round) * len(stories); len(reported) != want {
		t.Errorf("%d pairs of a story and a set-up are met, want %d", len(reported), want)
	}
}

// TestManySeedsMeetEverything: the seeds of make test-all play every story and
// meet every kind of fault that there is on PostgreSQL, the store that forgets and
// somebody else's transaction among them.
func TestManySeedsMeetEverything(t *testing.T) {
	stories, met := map[Scenario]bool{}, map[Kind]bool{}
	for _, s := range manySeeds {
		for i := range s.n {
			p := PlanOf(Variants(true), s.first+uint64(i), testTimes)
			stories[p.Scenario] = true
			for _, d := range p.Disturbances {
				met[d.Kind] = true
			}
			if p.Scenario.forgets() && slices.ContainsFunc(p.Disturbances, func(d Disturbance) bool { return strings.HasPrefix(string(d.Kind), "database") }) {
				t.Errorf("seed %d takes a database away that its story puts back: %s", p.Seed, p)
			}
		}
	}
	for _, s := range Scenarios() {
		if !stories[s] {
			t.Errorf("no seed tells %q", s)
		}
	}
	for _, k := range kinds(Variant{"postgresql", 1}, OneFault) {
		if !met[k] {
			t.Errorf("no seed meets %q", k)
		}
	}
}

// TestEveryStoreHasSeeds: the seeds of both journeys meet every store, and where
// there is no MongoDB server none of them is left out.
func TestEveryStoreHasSeeds(t *testing.T) {
	for name, seeds := range map[string][]span{"one per store": onePerStore, "many": manySeeds} {
		for _, mongodb := range []bool{true, false} {
			met := map[string]int{}
			for _, s := range seeds {
				for i := range s.n {
					met[PlanOf(Variants(mongodb), s.first+uint64(i), testTimes).Variant.Store]++
				}
			}
			if met["sqlite"] == 0 || met["postgresql"] == 0 || (met["mongodb"] > 0) != mongodb {
				t.Errorf("%s, with a MongoDB server: %v; seeds by store: %v", name, mongodb, met)
			}
		}
	}
}
