package journey

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/faultinjection"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// deliberate is a fault of our own, by its name in package sabotage, that the journey
// must notice.
type deliberate struct {
	sabotage string
	kill     string
	scenario Scenario
	want     []string // one of these invariants
	limit    time.Duration
	// disturb is the outage that only a service with this fault does not survive.
	disturb Kind
	// at is the point after which it begins; empty is before the story.
	at string
	// lasts is how long it goes on, if longer than the shortest outage.
	lasts time.Duration
	// by and of are those of a clock that jumps.
	by time.Duration
	of string
	// freeze is where a leader is frozen, until another one has seen the story
	// to its end.
	freeze string
}

// onceRemoved kills the connector as soon as the monitor has removed an event
// from its outbox because the connector acknowledged it.
const onceRemoved = "once removed"

func killOnceRemoved(t *testing.T, j *Journey, node string) {
	for pause(t.Context(), 20*time.Millisecond) {
		b, err := os.ReadFile(j.hitsFile())
		if err == nil && strings.Contains(string(b), "syslog-health-monitor/removed") {
			j.Fleet.Service(fleet.Connector + "@" + node).Kill()
			return
		}
	}
}

// A trip that the fault keeps from ending is given up soon.
const short, long = 12 * time.Second, time.Minute

// alone are the faults that one replica of each service brings to light.
func alone() []deliberate {
	return []deliberate{
		// First, while the monitor's removal of an acknowledged event can only
		// be of this trip: then the connector dies with what it had promised.
		{sabotage: "platform-connectors/drop-fsync", kill: onceRemoved, scenario: OneFault, want: []string{NothingLost}, limit: short},
		{sabotage: "fault-quarantine/skip-stamp", scenario: OneFault, want: []string{ItEnds}, limit: short},
		{sabotage: "fault-quarantine/skip-release", scenario: OneFault, want: []string{NoMarkLeft}, limit: short},
		// A Node without marks is asked before it is marked again: the other machine's
		// session may stand still instead of marking this one.
		{sabotage: "fault-quarantine/ignore-machine", scenario: Replaced, want: []string{CleanStart, ItEnds}, limit: short},
		{sabotage: "janitor/skip-intent", kill: "janitor/signal-sent", scenario: OneFault, want: []string{NothingRepeats, OneReboot}, limit: long},
		{sabotage: "janitor/ignore-session", scenario: TooLate, want: []string{NoStraySignal}, limit: long},
		{sabotage: "node-drainer/skip-cancel", scenario: Recovered, want: []string{NoEviction, NoMarkLeft}, limit: short},
		{sabotage: "syslog-health-monitor/forget-boot", scenario: OutboxLost, want: []string{ProvenRecovery}, limit: long},
		// A spool that has begun still has space in its file: the connector must start, and
		// receive an event, while the disk is full.
		{
			sabotage: "platform-connectors/acknowledge-anyway", disturb: DiskFull, lasts: 15 * time.Second,
			scenario: OneFault, want: []string{NothingLost}, limit: 3 * time.Second,
		},
		{sabotage: "platform-connectors/accept-foreign", disturb: Malformed, at: "platform-connectors/received", scenario: OneFault, want: []string{BadInput}, limit: long},
		// An hour ahead the fault seems younger than its recovery. The clock must
		// not be right again before the fault, which waits for the guard's pod.
		{
			sabotage: "fault-quarantine/order-by-clock", disturb: ClockJump, by: time.Hour, of: fleet.Monitor, lasts: 20 * time.Second,
			scenario: Recovered, want: []string{ItEnds}, limit: 5 * time.Second,
		},
	}
}

// ofReplicas are those that only a leader that comes back from the dead, or a database
// that goes away, brings to light.
func ofReplicas() []deliberate {
	return []deliberate{
		{sabotage: "platform-connectors/drop-unstored", disturb: DatabaseAway, at: "platform-connectors/appended", scenario: OneFault, want: []string{NothingLost}, limit: short},
		{sabotage: "fault-quarantine/blind-patch", freeze: "fault-quarantine/stamped", scenario: ManualUncordon, want: []string{NothingAgain}, limit: long},
	}
}

// TestJourneyCatchesDeliberateFaults: a check that no fault can fail proves nothing.
func TestJourneyCatchesDeliberateFaults(t *testing.T) {
	testkit.Long(t, "the audit's own tests hold what the invariants see")
	catch(t, Variant{"sqlite", 1}, alone())
}

// TestJourneyCatchesDeliberateFaultsOfReplicas does so with two replicas and a server.
func TestJourneyCatchesDeliberateFaultsOfReplicas(t *testing.T) {
	testkit.Long(t, "the audit's own tests hold what the invariants see")
	catch(t, Variant{"postgresql", 2}, ofReplicas())
}

// TestEveryDeliberateFaultIsCaught here, or by tests of its service.
func TestEveryDeliberateFaultIsCaught(t *testing.T) {
	for _, f := range faultinjection.Faults() {
		if here := func(d deliberate) bool { return d.sabotage == f.Name }; f.Run == "" && !slices.ContainsFunc(slices.Concat(alone(), ofReplicas()), here) {
			t.Errorf("nothing must notice %s: %s", f.Name, f.Description)
		}
	}
	for _, d := range slices.Concat(alone(), ofReplicas()) {
		if _, err := faultinjection.Of(d.sabotage); err != nil {
			t.Error(err)
		}
	}
}

func catch(t *testing.T, v Variant, faults []deliberate) {
	root := build(t)
	j, err := Start(t.Context(), Options{Variant: v, Nodes: len(faults), Root: root, Bin: bin, Lease: testTimes.Lease, Progress: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, d := range faults {
		t.Run(strings.ReplaceAll(d.sabotage, "/", "_"), func(t *testing.T) { d.catch(t, j, root) })
	}
}

func (d deliberate) catch(t *testing.T, j *Journey, root string) {
	trip := j.newRun(d.scenario, j.Node())
	trip.limit = d.limit
	fault, err := faultinjection.Of(d.sabotage)
	if err != nil {
		t.Fatal(err)
	}
	program, err := fault.Build(t.Context(), root, t.TempDir(), testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	a := arms{instead: map[string]string{d.sabotage: program}}
	switch d.kill {
	case "":
	case onceRemoved:
		go killOnceRemoved(t, j, trip.node)
	default:
		a.kills = []string{d.kill}
	}
	reported := make(chan struct{})
	if d.freeze != "" {
		a.freezes, a.until = []string{d.freeze}, reported
	}
	var outages []Disturbance
	if d.disturb != "" {
		lasts := max(d.lasts, testTimes.Shortest)
		outages = []Disturbance{{Kind: d.disturb, For: lasts, At: d.at, By: d.by, Of: d.of}}
		trip.limit += lasts
	}
	err = j.take(t.Context(), trip, a, outages)
	close(reported) // what was frozen goes on
	// Some faults show only when what was away, or frozen, has come back.
	trip.limit = max(trip.limit, 2*time.Minute) // a slow machine is not there yet
	var violations []Violation
	checkErr := trip.until(t.Context(), "the violation", func(ctx context.Context) (_ bool, err error) {
		violations, err = trip.check(ctx, j)
		return slices.ContainsFunc(violations, func(v Violation) bool { return slices.Contains(d.want, v.Invariant) }), err
	})
	if err := j.disarm(trip.node, d.sabotage); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		if slices.Contains(d.want, v.Invariant) {
			t.Logf("caught: %s", v)
			return
		}
	}
	t.Errorf("not caught: violations %v, errors %v %v\n%s", violations, err, checkErr, j.Fleet.Logs(trip.node, 10))
}
