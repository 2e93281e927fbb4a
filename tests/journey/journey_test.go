package journey

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

var (
	seeds     = flag.Int("seeds", 10, "trips of the kill journey")
	firstSeed = flag.Uint64("first-seed", 1, "seed of the first trip")
	storeKind = flag.String("store", "sqlite", "sqlite or postgresql")
)

// killsPerTrip is how many points of a trip kill their service.
const killsPerTrip = 5

// tripLimit is how long a trip may take although services die.
const tripLimit = 90 * time.Second

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
	code := m.Run()
	if err := os.RemoveAll(bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// journey is a fleet whose binaries have crash points.
type journey struct {
	t     *testing.T
	fleet *fleet.Fleet
	audit *audit
	hits  string
	next  int
	once  []string // folders of the markers that killed points left
}

func start(t *testing.T, nodes int) *journey {
	t.Helper()
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	if !built {
		if _, err := fleet.Build(t.Context(), root, bin, testLog{t}, "-tags", "crashpoints"); err != nil {
			t.Fatal(err)
		}
		built = true
	}
	j := &journey{t: t, audit: newAudit(), hits: filepath.Join(t.TempDir(), "hits")}
	j.fleet, err = fleet.Start(t.Context(), fleet.Options{
		Nodes: nodes, Store: *storeKind, SettleTime: time.Second, RebootTime: time.Second, Root: root, Bin: bin, Progress: testLog{t},
		JanitorFlags: []string{"--plugin-timeout", "2s", "--resend-after", "4s"},
		Env:          func(string, string) []string { return []string{"NVSENTINEL_CRASH_LOG=" + j.hits} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- j.audit.follow(ctx, j.fleet.Store) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("following the store: %v", err)
		}
		if err := j.fleet.Stop(); err != nil {
			t.Errorf("stopping the fleet: %v", err)
		}
	})
	if err := j.fleet.AddWorkloads(t.Context()); err != nil {
		t.Fatal(err)
	}
	return j
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// node gives each trip a node of its own.
func (j *journey) node() string {
	j.next++
	return fmt.Sprintf("gpu-%d", j.next-1)
}

// arm restarts services with an environment that kills or sabotages them.
func (j *journey) arm(node string, kills, sabotage []string) {
	once := j.t.TempDir()
	j.once = append(j.once, once)
	env := map[string][]string{}
	for _, k := range kills {
		point, _, _ := strings.Cut(k, ":")
		name := service(point, node)
		env[name] = append(env[name], k)
	}
	for _, s := range sabotage {
		name := service(s, node)
		env[name] = append(env[name], "")
	}
	for name, list := range env {
		j.rearm(name, []string{
			"NVSENTINEL_CRASH_LOG=" + j.hits, "NVSENTINEL_CRASH_ONCE=" + once,
			"NVSENTINEL_CRASH=" + strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), ","),
			"NVSENTINEL_SABOTAGE=" + strings.Join(sabotage, ","),
		})
	}
}

func (j *journey) rearm(name string, env []string) {
	s := j.fleet.Service(name)
	if s == nil {
		j.t.Fatalf("no service %q", name)
	}
	s.SetEnv(env)
	s.Kill()
}

func (j *journey) disarm(node string, points []string) {
	for _, p := range points {
		point, _, _ := strings.Cut(p, ":")
		j.rearm(service(point, node), []string{"NVSENTINEL_CRASH_LOG=" + j.hits})
	}
}

// TestKillJourney takes faults the whole way while services are killed at
// points and moments that the seed chooses.
func TestKillJourney(t *testing.T) {
	j := start(t, *seeds)
	var trips []*trip
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		trip := &trip{fleet: j.fleet, scenario: Scenarios()[i%len(Scenarios())], node: j.node(), limit: tripLimit}
		trips = append(trips, trip)
		kills := choose(rand.New(rand.NewPCG(seed, 0)), i, trip.scenario)
		began := time.Now()
		j.arm(trip.node, kills, nil)
		err := trip.run(t.Context())
		took := time.Since(began)
		violations, checkErr := trip.check(t.Context(), j.audit)
		t.Logf("seed %d: %s on %s, armed %v: %.1fs", seed, trip.scenario, trip.node, kills, took.Seconds())
		if err != nil || checkErr != nil || len(violations) > 0 {
			t.Errorf("seed %d (%s, armed %v): %v %v %v\n%s", seed, trip.scenario, kills, violations, err, checkErr, j.fleet.Logs(trip.node, 15))
		}
	}
	// Once more, when everything that was under way has come to rest.
	for i, trip := range trips {
		violations, err := trip.check(t.Context(), j.audit)
		if err != nil || len(violations) > 0 {
			t.Errorf("seed %d (%s), at the end: %v %v", *firstSeed+uint64(i), trip.scenario, violations, err)
		}
	}
	t.Log("\n" + table(hits(t, j.hits), j.kills(t)))
}

// deliberate is a fault of our own that the journey must notice.
type deliberate struct {
	sabotage string
	kill     string
	scenario Scenario
	want     []string // one of these invariants
	limit    time.Duration
}

// onceRemoved kills the connector as soon as the monitor has removed an event
// from its outbox because the connector acknowledged it.
const onceRemoved = "once removed"

func (j *journey) killOnceRemoved(node string) {
	for pause(j.t.Context(), 20*time.Millisecond) {
		b, err := os.ReadFile(j.hits)
		if err == nil && strings.Contains(string(b), "syslog-health-monitor/removed") {
			j.fleet.Service(fleet.Connector + "@" + node).Kill()
			return
		}
	}
}

// TestJourneyCatchesDeliberateFaults: a check that no fault can fail proves nothing.
func TestJourneyCatchesDeliberateFaults(t *testing.T) {
	// A trip that the fault keeps from ending is given up soon.
	const short, long = 12 * time.Second, time.Minute
	faults := []deliberate{
		// First, while the monitor's removal of an acknowledged event can only
		// be of this trip: then the connector dies with what it had promised.
		{"platform-connectors/drop-fsync", onceRemoved, OneFault, []string{NothingLost}, short},
		{"fault-quarantine/skip-stamp", "", OneFault, []string{ItEnds}, short},
		{"fault-quarantine/skip-release", "", OneFault, []string{NoMarkLeft}, short},
		{"fault-quarantine/ignore-machine", "", Replaced, []string{CleanStart}, short},
		{"janitor/skip-intent", "janitor/signal-sent", OneFault, []string{NothingRepeats, OneReboot}, long},
		{"janitor/ignore-session", "", TooLate, []string{NoStraySignal}, long},
		{"node-drainer/skip-cancel", "", Recovered, []string{NoEviction, NoMarkLeft}, short},
		{"syslog-health-monitor/forget-boot", "", OutboxLost, []string{ProvenRecovery}, long},
	}
	j := start(t, len(faults))
	for _, d := range faults {
		t.Run(strings.ReplaceAll(d.sabotage, "/", "_"), func(t *testing.T) {
			trip := &trip{fleet: j.fleet, scenario: d.scenario, node: j.node(), limit: d.limit}
			var kills []string
			switch d.kill {
			case "":
			case onceRemoved:
				go j.killOnceRemoved(trip.node)
			default:
				kills = []string{d.kill}
			}
			j.arm(trip.node, kills, []string{d.sabotage})
			err := trip.run(t.Context())
			violations, checkErr := trip.check(t.Context(), j.audit)
			j.disarm(trip.node, []string{d.sabotage})
			if checkErr != nil {
				t.Fatal(checkErr)
			}
			for _, v := range violations {
				if slices.Contains(d.want, v.Invariant) {
					t.Logf("caught: %s", v)
					return
				}
			}
			t.Errorf("not caught: violations %v, error %v\n%s", violations, err, j.fleet.Logs(trip.node, 10))
		})
	}
}

// kills counts the points that did kill, by the markers they left.
func (j *journey) kills(t *testing.T) map[string]int {
	out := map[string]int{}
	for _, dir := range j.once {
		markers, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range markers {
			out[strings.Replace(m.Name(), "_", "/", 1)]++
		}
	}
	return out
}

// choose picks points round robin, so that a run covers them all: the repair's
// own points for trips that are repaired, the others for the rest.
func choose(rng *rand.Rand, trip int, s Scenario) []string {
	var early, late []string
	for _, p := range Points() {
		if strings.HasPrefix(p, "fault-remediation/") || strings.HasPrefix(p, "janitor/") {
			late = append(late, p)
		} else {
			early = append(early, p)
		}
	}
	var out []string
	if s.reboots() > 0 {
		// Most of these are passed once in a repair.
		for _, p := range deal(late, trip/2, killsPerTrip-1) {
			out = append(out, p+":1")
		}
	}
	for _, p := range deal(early, trip, killsPerTrip-len(out)) {
		out = append(out, fmt.Sprintf("%s:%d", p, 1+rng.IntN(2)))
	}
	return out
}

// deal gives the n points of a turn from a shuffled round.
func deal(points []string, turn, n int) []string {
	order := rand.New(rand.NewPCG(7, 7)).Perm(len(points))
	var out []string
	for i := range n {
		out = append(out, points[order[(turn*n+i)%len(points)]])
	}
	return out
}

func hits(t *testing.T, path string) map[string]int {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		_, point, _ := strings.Cut(lines.Text(), " ")
		out[point]++
	}
	return out
}

// table is service x point x hits.
func table(hits, killed map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %-18s %8s %8s\n", "service", "point", "hits", "kills")
	for _, p := range Points() {
		service, point, _ := strings.Cut(p, "/")
		fmt.Fprintf(&b, "%-24s %-18s %8d %8d\n", service, point, hits[p], killed[p])
	}
	return b.String()
}
