package journey

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Forgetful are the trips in which the store loses what it knew, each on a fleet
// of its own, since earlier trips' records are gone with it.
func (r Round) Forgetful() []Plan {
	var out []Plan
	for _, store := range []string{"postgresql", "sqlite", "mongodb"} {
		for _, s := range []Scenario{Emptied, Restored, RestoredLate} {
			if r.Has(store) {
				out = append(out, Plan{Variant: Variant{store, 1}, Scenario: s})
			}
		}
	}
	return out
}

// unknownFor is how long a node's marks are watched after the store lost its
// session; the services are started anew meanwhile, and ring every node.
const unknownFor = 20 * time.Second

// restLoad ends the load and takes it out of the account: what the store has
// lost is not lost by the suite.
func (t *trip) restLoad(ctx context.Context) error {
	if err := t.endLoad(); err != nil {
		return err
	}
	if err := t.until(ctx, "the load to be stored", t.loadStored); err != nil {
		return err
	}
	t.load.forget()
	return nil
}

func (t *trip) backUp(ctx context.Context) error {
	if err := t.restLoad(ctx); err != nil {
		return err
	}
	restore, err := t.fleet.BackUpStore(ctx)
	t.restore = restore
	return err
}

// forget has the store lose the session of a broken node. The node keeps its
// marks until its fault is known again or a person says what to do.
func (t *trip) forget(ctx context.Context) error {
	if err := t.restLoad(ctx); err != nil {
		return err
	}
	lose := t.restore
	if lose == nil {
		lose = t.fleet.EmptyStore
	}
	if err := lose(ctx); err != nil {
		return err
	}
	t.anew()
	for end := time.Now().Add(unknownFor); time.Now().Before(end) && pause(ctx, 100*time.Millisecond); {
		left, err := t.marks(ctx)
		if err == nil && (len(left) == 0 || !strings.Contains(strings.Join(left, " "), "cordon")) {
			t.unproven = append(t.unproven, fmt.Sprintf("released with its fault standing; marks left: %v", left))
			break
		}
	}
	faults, err := t.faults(ctx)
	if err != nil {
		return err
	}
	if len(faults) > 0 { // its connector told the store again: the session goes on
		return t.endGuard(ctx)
	}
	return t.confirm(ctx)
}

// forgetLate has the store take a node for broken that was repaired. Nothing
// may be done to it but what a person asks for.
func (t *trip) forgetLate(ctx context.Context) error {
	if err := t.until(ctx, "the repair", t.over); err != nil {
		return err
	}
	if err := t.restore(ctx); err != nil {
		return err
	}
	t.anew()
	for end := time.Now().Add(unknownFor); time.Now().Before(end) && pause(ctx, 100*time.Millisecond); {
		if n, err := t.fleet.Reboots(t.node); err == nil && n > t.scenario.reboots() {
			t.unproven = append(t.unproven, "rebooted again for a fault that its repair had ended")
			break
		}
	}
	if over, err := t.over(ctx); over || err != nil {
		return err
	}
	return t.confirm(ctx)
}

// confirm is a person who has looked at the node: the one verb with which a hold
// of a session that the store does not know is ended.
func (t *trip) confirm(ctx context.Context) error { return t.uncordon(ctx) }

// besideTransaction opens somebody else's transaction, which ends when the node's
// fault was judged beside it, or when that has taken as long as a step may.
func (t *trip) besideTransaction(ctx context.Context) (func(context.Context) error, error) {
	end, err := t.fleet.HoldTransaction(ctx)
	if err != nil {
		return nil, err
	}
	t.beside = true
	return func(ctx context.Context) error {
		err := t.until(ctx, "a fault to be judged", t.judged)
		if err != nil {
			t.heldUp = "no fault was judged while a foreign transaction was open: " + err.Error()
		}
		return end(ctx)
	}, nil
}

// judged says whether a fault of the node has its verdict.
func (t *trip) judged(ctx context.Context) (bool, error) {
	faults, err := t.faults(ctx)
	for _, r := range faults {
		if r.Reason() != "" {
			return true, err
		}
	}
	return false, err
}

// anew starts the services that read the store once more.
func (t *trip) anew() {
	for _, room := range []string{"fault-quarantine", "node-drainer", "fault-remediation"} {
		for _, s := range t.fleet.Replicas(room) {
			s.Kill()
		}
	}
}

// forget empties the account of what was acknowledged.
func (l *load) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.acked)
}
