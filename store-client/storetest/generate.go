package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Values that generated records and selectors share, so that they meet.
var (
	someNodes       = []string{"node-a", "node-b", "node c'; --"}
	someAgents      = []string{"syslog-health-monitor", "gpu-health-monitor", record.AnalyzerAgent}
	someSessions    = []string{"", "session-1", "session-2"}
	someEpochs      = []string{"", "epoch-1", longName}
	someQuarantines = []record.Quarantine{
		record.NotQuarantined, record.Quarantined, record.AlreadyQuarantined, record.UnQuarantined, record.QuarantineCanceled,
	}
	someEvictions = []record.Eviction{
		record.EvictionUnset, record.EvictionInProgress, record.EvictionSucceeded,
		record.AlreadyDrained, record.EvictionFailed, record.EvictionCanceled,
	}
	someReasons = []record.Reason{
		"", record.Matched, record.NoRuleMatched, record.Held, record.Skipped, record.OptedOut, record.CoveredByReboot,
		record.Superseded, record.Cleared, record.NoOpenFault, record.DryRun,
	}
	longName = incompressible(5000)
)

// incompressible is a text of n bytes that is too long for an index.
func incompressible(n int) string {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + rng.IntN('~'-'!'))
	}
	return string(b)
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// Generate is a record in any state the services may leave it in.
func Generate(rng *rand.Rand) record.Record {
	r := Record(pick(rng, someNodes))
	r.Event.Agent = pick(rng, someAgents)
	r.Event.IsHealthy = rng.IntN(3) == 0
	if rng.IntN(4) == 0 {
		r.Event.ProcessingStrategy = record.PersistOnly
	}
	if r.SeqEpoch = pick(rng, someEpochs); r.SeqEpoch != "" {
		r.Seq = rng.Uint64() >> rng.IntN(64)
	}
	at := time.Date(2026, 2, 3, 4, 5, 6, rng.IntN(1e9), time.UTC)
	r.Status = record.Status{
		NodeQuarantined:        pick(rng, someQuarantines),
		UserPodsEvictionStatus: record.EvictionStatus{Status: pick(rng, someEvictions)},
		Session:                pick(rng, someSessions),
	}
	if reason := pick(rng, append(someReasons, record.Matched, record.Matched, record.Matched)); reason != "" {
		r.Status.QuarantineVerdict = &record.Verdict{Reason: reason, At: at}
	}
	for i := range rng.IntN(3) {
		f := record.Fault{Key: fmt.Sprint("entry-", i)}
		if rng.IntN(2) == 0 {
			f.ClearedTimestamp, f.ClearedBy = &at, record.ClearedManual
		}
		r.Status.Faults = append(r.Status.Faults, f)
	}
	if rng.IntN(2) == 0 {
		done := rng.IntN(2) == 0
		r.Status.FaultRemediated = &done
	}
	if rng.IntN(3) == 0 {
		r.Status.Remediation = &record.Remediation{Cause: r.ID, Attempts: []record.Attempt{{Ordinal: 1, SubmittedAt: at}}}
	}
	return r
}

// Inserted are records as a connector stores them, one for each combination of the fields that
// the named selectors of insertions distinguish.
func Inserted() []record.Record {
	var out []record.Record
	for _, strategy := range []record.Strategy{record.Process, record.PersistOnly} {
		for _, agent := range someAgents {
			for i := range 4 {
				out = append(out, Record("node-a", func(r *record.Record) {
					r.Event.ProcessingStrategy, r.Event.Agent = strategy, agent
					r.Event.IsHealthy, r.Event.IsFatal = i&1 != 0, i&2 != 0
				}))
			}
		}
	}
	return out
}

// GenerateSelector is any selector, nested at most twice.
func GenerateSelector(rng *rand.Rand) record.Selector { return generateSelector(rng, 2) }

func generateSelector(rng *rand.Rand, depth int) record.Selector {
	some := func() bool { return rng.IntN(5) == 0 }
	yesNo := func() *bool { b := rng.IntN(2) == 0; return &b }
	s := record.Selector{Name: "generated", InsertsOnly: rng.IntN(2) == 0}
	if some() {
		s.Node = pick(rng, append(someNodes, "absent"))
	}
	if some() {
		s.Strategy = pick(rng, []record.Strategy{record.Process, record.PersistOnly, "no such'"})
	}
	if some() {
		s.Healthy = yesNo()
	}
	if some() {
		s.Agent = pick(rng, someAgents)
	}
	if some() {
		s.NotAgent = pick(rng, someAgents)
	}
	if some() {
		s.Session = pick(rng, someSessions)
	}
	if some() {
		s.SeqEpoch = pick(rng, someEpochs)
	}
	if some() {
		s.Quarantined = several(rng, someQuarantines)
	}
	if some() {
		s.Evictions = several(rng, someEvictions)
	}
	if some() {
		s.Verdicts = several(rng, someReasons)
	}
	if some() {
		s.Remediated = pick(rng, []string{"null", "true", "false"})
	}
	if some() {
		s.Repaired = yesNo()
	}
	if some() {
		s.Open = yesNo()
	}
	if depth > 0 && rng.IntN(3) == 0 {
		for range 1 + rng.IntN(3) {
			s.Any = append(s.Any, generateSelector(rng, depth-1))
		}
	}
	return s
}

func several[T any](rng *rand.Rand, from []T) []T {
	var out []T
	for range 1 + rng.IntN(3) {
		out = append(out, pick(rng, from))
	}
	return out
}

// WorstEvent is the largest and oddest event the ingest endpoint accepts:
// 1,024 entities, 256 codes, 64 metadata entries and a message of 32 KiB.
func WorstEvent(node string) record.Record {
	odd := "\u2028\u2029\ufffd\uffff\U0001F9EF\u200f\"\\u0000\\\x01\x7f<>&'\r\n\t e\u0301 \U0010FFFF"
	return Record(node, func(r *record.Record) {
		var message []byte
		for len(message)+len(odd) <= 32<<10 {
			message = append(message, odd...)
		}
		r.Event.Message = string(message)
		r.Event.EntitiesImpacted, r.Event.ErrorCode, r.Event.Metadata = nil, nil, map[string]string{}
		for i := range 1024 {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: odd, EntityValue: fmt.Sprint(i, odd)})
		}
		for i := range 256 {
			r.Event.ErrorCode = append(r.Event.ErrorCode, fmt.Sprint(i, odd))
		}
		for i := range 64 {
			r.Event.Metadata[fmt.Sprint(i, odd)] = odd
		}
		r.Event.QuarantineOverrides = &record.Override{Force: true}
		r.Event.GeneratedTimestamp = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
		r.Seq, r.SeqEpoch = 1<<64-1, odd
	})
}
