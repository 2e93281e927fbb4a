package journey

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Variant is how a fleet is set up.
type Variant struct {
	Store    string
	Replicas int
}

func (v Variant) String() string {
	return fmt.Sprintf("%s, %d of each control service", v.Store, v.Replicas)
}

// BatchSize is how many consecutive seeds share a fleet.
const BatchSize = 5

// Round is the set-ups that batches of seeds go through, in turns.
type Round []Variant

// Variants is the round of every store. Where no MongoDB server is to be had,
// its batches go to the other stores.
func Variants(mongodb bool) Round {
	round := Round{{"sqlite", 1}, {"postgresql", 2}, {"mongodb", 1}, {"sqlite", 2}, {"postgresql", 1}, {"mongodb", 2}}
	if !mongodb {
		round[2], round[5] = Variant{"postgresql", 1}, Variant{"sqlite", 2}
	}
	return round
}

// Batch is the number of a seed's batch; all its seeds share a Variant.
func Batch(seed uint64) uint64 { return (seed - 1) / BatchSize }

// NewSeeds is a first seed that nobody has run before: seeds count tenths of a
// second, in which no machine runs a trip.
func NewSeeds(now time.Time) uint64 { return uint64(now.UnixMilli() / 100) }

// Of is the set-up of a batch.
func (r Round) Of(batch uint64) Variant { return r[batch%uint64(len(r))] }

// Kind is a kind of fault that is injected beside the kills.
type Kind string

// Kinds of faults.
const (
	// Killed: SIGKILL at a named point.
	Killed Kind = "killed at a point"
	// Frozen: SIGSTOP of a leader in mid-decision; where another replica stands
	// by, the leader goes on only after that one has taken over.
	Frozen Kind = "frozen at a point"
	// APIAway: the API server is killed and comes back.
	APIAway Kind = "API server away"
	// DatabaseAway: the server is killed and comes back under load; SQLite's
	// file is locked by another writer.
	DatabaseAway Kind = "database away"
	// DatabaseCut: connections to the server break, also between a commit and
	// its answer.
	DatabaseCut Kind = "database connections cut"
	// NotPrimary: MongoDB's server steps down and refuses every write.
	NotPrimary Kind = "database not primary"
	// ClockJump: the clocks of services jump and later jump back.
	ClockJump Kind = "clock jump"
	// DiskFull: the connector's spool has no byte left.
	DiskFull Kind = "connector disk full"
	// StaleWatch: watches are seconds late, reads and writes are not.
	StaleWatch Kind = "stale caches"
	// Malformed: the node's ingest endpoint gets what no publisher should send.
	Malformed Kind = "malformed events"
	// ColdStart: all services start at once on an empty database, with a fault
	// in a log already.
	ColdStart Kind = "all started at once"
	// ForeignTransaction: somebody else's writing transaction is open on the
	// PostgreSQL server until the fault is evaluated.
	ForeignTransaction Kind = "foreign transaction"
	// NodeDeleted: the Node object goes in mid-flow, and comes back as the same
	// machine or another.
	NodeDeleted Kind = "node deleted"
	// StoreForgets: the store loses every record, or is put back to an older state.
	StoreForgets Kind = "store emptied or put back"
)

// kinds are what a seed of a variant and a story can draw.
func kinds(v Variant, s Scenario) []Kind {
	if s.forgets() {
		// The store is put back by the story, and only the clocks distinguish the end of a fault
		// from its beginning.
		return []Kind{APIAway, Frozen, StaleWatch}
	}
	all := []Kind{APIAway, Frozen, DatabaseAway, ClockJump, DiskFull, StaleWatch, Malformed}
	switch v.Store {
	case "postgresql":
		all = append(all, DatabaseCut, ForeignTransaction)
	case "mongodb":
		all = append(all, DatabaseCut, NotPrimary)
	}
	return all
}

// Disturbance is one fault of a plan.
type Disturbance struct {
	Kind Kind
	// After the trip has begun, or before it does when it is 0, For so long.
	After, For time.Duration
	// At is a point that has to be passed first; empty is none.
	At string
	// By is how far clocks jump or how late watches are.
	By time.Duration
	// Of is the service whose clock jumps (empty: every one's).
	Of string
}

func (d Disturbance) String() string {
	s := fmt.Sprintf("%s after %s for %s", d.Kind, d.After, d.For)
	if d.By != 0 {
		s += fmt.Sprintf(" by %s", d.By)
	}
	if d.Of != "" {
		s += " of " + d.Of
	}
	return s
}

// Times bound a journey's outages.
type Times struct {
	// Shortest and Longest outage. One of three lasts from Long to Longest, if
	// Long is set.
	Shortest, Longest, Long time.Duration
	// Lease is the life of a leader's lease.
	Lease time.Duration
}

func (t Times) outage(rng *rand.Rand) time.Duration {
	from, to := t.Shortest, t.Longest
	if t.Long > 0 {
		if rng.IntN(3) == 0 {
			from = t.Long
		} else {
			to = min(4*t.Shortest, t.Long)
		}
	}
	return (from + time.Duration(rng.Int64N(int64(to-from)+1))).Round(time.Millisecond)
}

// disturbancesPerRun is how many faults a seed draws beside its kills.
const disturbancesPerRun = 2

// Plan is what a seed makes of a trip: a function of the seed and the times.
type Plan struct {
	Seed         uint64
	Variant      Variant
	Scenario     Scenario
	Kills        []string // point:N
	Freeze       string   // point:N, or empty
	Disturbances []Disturbance
}

func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, kills %v", p.Scenario, p.Variant, p.Kills)
	if p.Freeze != "" {
		fmt.Fprintf(&b, ", frozen at %s", p.Freeze)
	}
	for _, d := range p.Disturbances {
		fmt.Fprintf(&b, ", %s", d)
	}
	return b.String()
}

// PlanOf is the plan of a seed, which counts from 1, in a round. Kinds, points
// and stories go round, so that a run of consecutive seeds meets them all;
// moments and lengths are the seed's own.
func PlanOf(round Round, seed uint64, times Times) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	turn := int(seed - 1)
	p := Plan{Seed: seed, Variant: round.Of(Batch(seed)), Scenario: Scenarios()[turn%len(Scenarios())]}
	kills := killsPerRun
	if p.Variant.Replicas > 1 {
		kills = killsOfElected // each costs a lease's life
	}
	p.Kills = choose(rng, turn, p.Scenario, kills)
	for _, kind := range deal(kinds(p.Variant, p.Scenario), turn, disturbancesPerRun) {
		d := Disturbance{Kind: kind, After: time.Duration(rng.IntN(1500)) * time.Millisecond, For: times.outage(rng)}
		switch kind {
		case Frozen:
			p.Freeze = freezePoint(rng, p.Scenario)
		case ClockJump:
			d.By, d.Of = jump(rng), clockOf(rng)
		case StaleWatch:
			d.By = time.Duration(1000+rng.IntN(2000)) * time.Millisecond
		default:
		}
		p.Disturbances = append(p.Disturbances, d)
	}
	return p
}

// freezePoint is a point of a control service that the scenario passes.
func freezePoint(rng *rand.Rand, s Scenario) string {
	var possible []string
	for _, p := range Points() {
		late := strings.HasPrefix(p, "fault-remediation/") || strings.HasPrefix(p, "janitor/")
		early := strings.HasPrefix(p, "fault-quarantine/") || strings.HasPrefix(p, "node-drainer/")
		if early || late && s.reboots() > 0 {
			possible = append(possible, p)
		}
	}
	return possible[rng.IntN(len(possible))] + ":1"
}

// jump is seconds to a day, in either direction.
func jump(rng *rand.Rand) time.Duration {
	scale := []time.Duration{time.Second, time.Minute, time.Hour}[rng.IntN(3)]
	by := time.Duration(1+rng.IntN(24)) * scale
	if rng.IntN(2) == 0 {
		return -by
	}
	return by
}

// clockOf names one service whose clock jumps, or all.
func clockOf(rng *rand.Rand) string {
	services := []string{"", "", "syslog-health-monitor", "platform-connectors", "fault-quarantine", "node-drainer", "fault-remediation", "janitor"}
	return services[rng.IntN(len(services))]
}

// choose picks points round robin, so that a run covers them all: the repair's
// own points for trips that are repaired, the others for the rest.
func choose(rng *rand.Rand, turn int, s Scenario, n int) []string {
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
		for _, p := range deal(late, turn/2, n-1) {
			out = append(out, p+":1")
		}
	}
	for _, p := range deal(early, turn, n-len(out)) {
		out = append(out, fmt.Sprintf("%s:%d", p, 1+rng.IntN(2)))
	}
	return out
}

// deal gives the n items of a turn from a shuffled round.
func deal[T any](items []T, turn, n int) []T {
	order := rand.New(rand.NewPCG(7, 7)).Perm(len(items))
	var out []T
	for i := range n {
		out = append(out, items[order[(turn*n+i)%len(items)]])
	}
	return out
}
